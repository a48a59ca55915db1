package handlers

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/httprate"

	"github.com/heardlog/heardlog/internal/fault"
)

// Router gives the whole URL map.
func (a *API) Router() http.Handler {
	r := chi.NewRouter()
	r.Use(a.observe)
	if a.Access.open() {
		r.Use(a.localOnly)
	}
	r.NotFound(a.handle(agoraError, func(http.ResponseWriter, *http.Request) error {
		return fault.New(fault.NotFound, "no Route matched with those values")
	}))
	flat := chi.NewRouter() // filled below
	r.MethodNotAllowed(methodNotAllowed(flat))

	r.Get("/healthz", healthz)
	r.Get("/readyz", a.handle(agoraError, a.readyz))
	r.Method(http.MethodGet, "/metrics", a.MetricsPage)
	r.Get("/openapi.yaml", a.spec)
	r.Get("/docs", a.handle(agoraError, a.docs))

	limit := a.rateLimit()
	for base, kind := range map[string]joinKind{
		"/api/conversational-ai-agent/v2/projects/{appid}":    joinAgora,
		"/cn/api/conversational-ai-agent/v2/projects/{appid}": joinCN,
	} {
		r.Route(base, func(r chi.Router) {
			r.Use(a.enter(agoraError), limit(agoraError))
			a.agentRoutes(r, kind)
		})
	}
	r.Route("/v1", func(r chi.Router) {
		r.Group(func(r chi.Router) {
			r.Use(a.enter(agoraError), limit(agoraError))
			a.agentRoutes(r, joinV1)
			r.Post("/agents", a.handle(agoraError, a.join(joinV1)))
			r.Post("/evidence/{platform}", a.handle(agoraError, a.evidenceOfCall))
			r.Get("/profiles", a.handle(agoraError, a.profiles))
			r.Get("/policies", a.handle(agoraError, a.policies))
			r.Post("/memory-model/validate", a.handle(agoraError, a.validateModel))
			r.Route("/webhooks", a.webhookRoutes)
			a.conversationRoutes(r)
			a.memoryRoutes(r)
			r.Delete("/users/{user}", a.handle(agoraError, a.eraseUser))
			r.Delete("/projects/{project}", a.handle(agoraError, a.eraseProject))
		})
		r.Post("/ingest/agora", a.handle(agoraError, a.ingestAgora))    // who calls is told by its signature
		r.Get("/webhooks/fetch/{token}", a.handle(agoraError, a.fetch)) // the token is the permission
		r.Group(func(r chi.Router) {                                    // the OpenAI-compatible part
			r.Use(a.enter(openAIError), limit(openAIError))
			r.Post("/chat/completions", a.handle(openAIError, a.chatCompletions))
			r.Get("/models", a.handle(openAIError, a.models))
			r.Post("/embeddings", a.handle(openAIError, a.passThrough))
			r.With(a.agentPath(openAIError)).Post("/agents/{id}/chat/completions", a.handle(openAIError, a.chatCompletions))
			r.With(a.agentPath(openAIError)).Get("/agents/{id}/models", a.handle(openAIError, a.models))
		})
		if len(a.PassThrough) > 0 {
			pass := a.enter(openAIError)(limit(openAIError)(a.handle(openAIError, a.passThrough)))
			r.NotFound(pass.ServeHTTP)
		}
	})
	flatten(r, flat)
	a.own = ownNames(r)
	return r
}

// agentRoutes are the paths that exist under every base.
func (a *API) agentRoutes(r chi.Router, kind joinKind) {
	h := func(f handlerFunc) http.HandlerFunc { return a.handle(agoraError, f) }
	r.Post("/join", h(a.join(kind)))
	r.Post("/join/", h(a.join(kind))) // as some of Agora's material writes it
	r.Get("/agents", h(a.agents))
	r.Route("/agents/{id}", func(r chi.Router) {
		r.Use(a.agentPath(agoraError))
		r.Get("/", h(a.touching(a.agent)))
		r.Delete("/", h(a.erase))
		r.Post("/leave", h(a.touching(a.leave)))
		r.Post("/update", h(a.touching(a.update)))
		r.Get("/history", h(a.touching(a.history)))
		r.Get("/turns", h(a.touching(a.turns)))
		r.Post("/speak", h(a.touching(a.speak)))
		r.Post("/think", h(a.touching(a.think)))
		r.Post("/interrupt", h(a.touching(a.interrupt)))
		r.Post("/evidence/{platform}", h(a.touching(a.evidence)))
		r.Post("/messages", h(a.touching(a.appendMessages)))
		r.Get("/messages", h(a.touching(a.ledger)))
		r.Get("/events", h(a.touching(a.tail)))
		r.Post("/context", h(a.touching(a.context)))
		r.Get("/snapshot", h(a.touching(a.snapshot)))
		r.Put("/snapshot", h(a.touching(a.putSnapshot)))
		r.Get("/summarizable", h(a.touching(a.summarizable)))
		r.Post("/trim", h(a.touching(a.trim)))
		r.Post("/repair", h(a.touching(a.repair)))
		r.Post("/clear", h(a.touching(a.clear)))
		r.Get("/summary", h(a.touching(a.summary)))
		r.Put("/summary", h(a.touching(a.putSummary)))
		r.Delete("/summary", h(a.touching(a.deleteSummary)))
		a.workingRoutes(r)
	})
}

// touching notes, once the call has found the agent in the caller's project, that somebody asked for it.
func (a *API) touching(next handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		err := next(w, r)
		if err == nil {
			a.Memory.Touch(projectOf(r), chi.URLParam(r, "id"))
		}
		return err
	}
}

// rateLimit makes one limit for all bases, counted by project.
func (a *API) rateLimit() func(errorStyle) func(http.Handler) http.Handler {
	if a.RateLimit <= 0 {
		return func(errorStyle) func(http.Handler) http.Handler {
			return func(next http.Handler) http.Handler { return next }
		}
	}
	byProject := func(r *http.Request) (string, error) { return projectOf(r), nil }
	counter := httprate.NewLocalLimitCounter(time.Second)
	return func(style errorStyle) func(http.Handler) http.Handler {
		return httprate.LimitBy(a.RateLimit, time.Second, byProject, httprate.WithLimitCounter(counter),
			httprate.WithLimitHandler(func(w http.ResponseWriter, r *http.Request) {
				a.Metrics.limited.Inc()
				a.answerError(w, r, style, fault.New(fault.RateLimited, "the project makes more than %d requests a second", a.RateLimit))
			}))
	}
}

// methodNotAllowed answers 405 and names in Allow the methods that the path has; flat holds every route of the map.
func methodNotAllowed(flat *chi.Mux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimSuffix(cmp.Or(r.URL.RawPath, r.URL.Path), "/")
		var has []string
		for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodPut} {
			if flat.Match(chi.NewRouteContext(), m, path) {
				has = append(has, m)
			}
		}
		w.Header().Set("Allow", strings.Join(has, ", "))
		writeAgoraError(w, http.StatusMethodNotAllowed, agoraErrorBody{
			Detail: "method " + clip(r.Method, 20) + " is not allowed here", Reason: "InvalidRequest",
		}, fault.Invalid)
	}
}

// flatten puts every route of r into flat by its whole pattern: a router that is mounted in another matches all methods where it begins.
func flatten(r chi.Routes, flat *chi.Mux) {
	_ = chi.Walk(r, func(method, pattern string, h http.Handler, _ ...func(http.Handler) http.Handler) error {
		flat.Method(method, cmp.Or(strings.TrimSuffix(pattern, "/"), "/"), h)
		return nil
	})
}
