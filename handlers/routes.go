package handlers

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/apidocs"
	"github.com/heardlog/heardlog/internal/fault"
)

// agora and openAI turn a handler into one that answers errors in the form of its path.
func agora(f handlerFunc) http.HandlerFunc  { return handle(agoraError, f) }
func openAI(f handlerFunc) http.HandlerFunc { return handle(openAIError, f) }

// routes returns the URL map.
func (a *api) routes(c Config) *chi.Mux {
	enter, limit := c.Access.enter, rateLimit(c.RateLimit, c.Metrics.limited)
	r, flat := chi.NewRouter(), chi.NewRouter() // flat is filled below
	r.Use(observer{c.Log, c.Metrics, c.BodyTimeout}.middleware)
	if c.Access.open() {
		r.Use(localOnly)
	}
	r.NotFound(agora(noRoute))
	r.MethodNotAllowed(methodNotAllowed(flat))

	r.Get("/healthz", healthz)
	r.Get("/readyz", agora(a.ops.readyz))
	r.Method(http.MethodGet, "/metrics", a.ops.metricsPage)
	r.Get("/openapi.yaml", a.ops.spec)
	r.Get("/docs", apidocs.Page)
	r.Get("/docs/viewer.js", apidocs.Viewer)

	for base, kind := range map[string]joinKind{
		"/api/conversational-ai-agent/v2/projects/{appid}":    joinAgora,
		"/cn/api/conversational-ai-agent/v2/projects/{appid}": joinCN,
	} {
		r.Route(base, func(r chi.Router) {
			r.Use(enter(agoraError), limit(agoraError))
			a.agentRoutes(r, kind)
		})
	}
	r.Route("/v1", func(r chi.Router) {
		r.Group(func(r chi.Router) {
			r.Use(enter(agoraError), limit(agoraError))
			a.agentRoutes(r, joinV1)
			a.projectRoutes(r)
			r.Route("/webhooks", a.webhookRoutes)
		})
		// A signature takes the place of credentials.
		r.Post("/ingest/agora", agora(a.notices.receive))
		r.Get("/webhooks/fetch/{token}", agora(a.webhooks.fetch)) // so does the token
		r.Group(func(r chi.Router) {
			r.Use(enter(openAIError), limit(openAIError))
			a.chatRoutes(r)
		})
		if len(c.PassThrough) > 0 {
			r.NotFound(enter(openAIError)(limit(openAIError)(openAI(a.proxy.passThrough))).ServeHTTP)
		}
	})
	flatten(r, flat)
	a.proxy.own = ownNames(r)
	return r
}

// agentRoutes adds the paths that exist under every base.
func (a *api) agentRoutes(r chi.Router, kind joinKind) {
	h := func(f handlerFunc) http.HandlerFunc { return agora(touching(a.agents.memory, f)) }
	r.Post("/join", agora(a.agents.join(kind)))
	r.Post("/join/", agora(a.agents.join(kind))) // some of Agora's material has the slash
	r.Get("/agents", agora(a.agents.list))
	r.Route("/agents/{id}", func(r chi.Router) {
		r.Use(agentPath(agoraError))
		r.Get("/", h(a.agents.get))
		r.Delete("/", agora(a.agents.erase))
		r.Post("/leave", h(a.agents.leave))
		r.Post("/update", h(a.agents.update))

		r.Post("/speak", h(a.speech.speak))
		r.Post("/think", h(a.speech.think))
		r.Post("/interrupt", h(a.speech.interrupt))
		r.Post("/evidence/{platform}", h(a.evidence.ofAgent))

		r.Get("/history", h(a.messages.history))
		r.Get("/turns", h(a.messages.turns))
		r.Post("/messages", h(a.messages.append))
		r.Get("/messages", h(a.messages.list))
		r.Get("/events", h(a.tails.stream))

		r.Post("/context", h(a.context.build))
		r.Get("/snapshot", h(a.context.snapshot))
		r.Put("/snapshot", h(a.context.restore))
		r.Get("/summarizable", h(a.context.summarizable))
		r.Post("/trim", h(a.context.trim))
		r.Post("/repair", h(a.context.repair))
		r.Post("/clear", h(a.context.clear))
		r.Get("/summary", h(a.context.summary))
		r.Put("/summary", h(a.context.putSummary))
		r.Delete("/summary", h(a.context.deleteSummary))

		r.Get("/working-memory", h(a.working.list))
		r.Delete("/working-memory", h(a.working.clear))
		r.Get("/working-memory/{key}", h(a.working.get))
		r.Put("/working-memory/{key}", h(a.working.put))
		r.Delete("/working-memory/{key}", h(a.working.delete))
	})
}

// projectRoutes adds what belongs to a project and exists under /v1 alone.
func (a *api) projectRoutes(r chi.Router) {
	r.Post("/agents", agora(a.agents.join(joinV1)))
	r.Post("/evidence/{platform}", agora(a.evidence.ofCall))
	r.Get("/profiles", agora(a.proxy.profiles))
	r.Get("/policies", agora(a.context.policies))
	r.Post("/memory-model/validate", agora(a.models.checkModel))

	r.Get("/conversations", agora(a.conversations.list))
	r.Delete("/conversations", agora(a.conversations.clear))
	r.Put("/conversations/{id}", agora(a.conversations.save))
	r.Get("/conversations/{id}", agora(a.conversations.get))
	r.Delete("/conversations/{id}", agora(a.conversations.delete))

	r.Post("/memories", agora(a.items.add))
	r.Post("/memories/search", agora(a.items.search))
	r.Post("/memories/clear", agora(a.items.clear))
	r.Get("/memories/{id}", agora(a.items.get))
	r.Post("/memories/{id}/status", agora(a.items.setStatus))

	r.Delete("/users/{user}", agora(a.erase.user))
	r.Delete("/projects/{project}", agora(a.erase.project))
}

// webhookRoutes adds the calls about webhooks that need credentials.
func (a *api) webhookRoutes(r chi.Router) {
	r.Get("/event-types", agora(a.webhooks.eventTypes))

	r.Post("/endpoints", agora(a.webhooks.createEndpoint))
	r.Get("/endpoints", agora(a.webhooks.endpoints))
	r.Get("/endpoints/{id}", agora(a.webhooks.endpoint))
	r.Patch("/endpoints/{id}", agora(a.webhooks.patchEndpoint))
	r.Put("/endpoints/{id}", agora(a.webhooks.putEndpoint))
	r.Delete("/endpoints/{id}", agora(a.webhooks.deleteEndpoint))
	r.Post("/endpoints/{id}/secrets", agora(a.webhooks.rotateSecret))
	r.Delete("/endpoints/{id}/secrets/{secret_id}", agora(a.webhooks.revokeSecret))
	r.Post("/endpoints/{id}/enable", agora(a.webhooks.switchEndpoint(true)))
	r.Post("/endpoints/{id}/disable", agora(a.webhooks.switchEndpoint(false)))
	r.Post("/endpoints/{id}/test", agora(a.webhooks.testEndpoint))

	r.Get("/messages", agora(a.webhooks.messages))
	r.Get("/messages/{id}", agora(a.webhooks.message))
	r.Get("/deliveries", agora(a.webhooks.deliveries))
	r.Get("/deliveries/{id}", agora(a.webhooks.delivery))
	r.Post("/deliveries/{id}/replay", agora(a.webhooks.replayDelivery))
	r.Post("/deliveries/{id}/cancel", agora(a.webhooks.cancelDelivery))
	r.Post("/replays", agora(a.webhooks.replays))
}

// chatRoutes adds the paths that imitate OpenAI's.
func (a *api) chatRoutes(r chi.Router) {
	r.Post("/chat/completions", openAI(a.proxy.chat))
	r.Get("/models", openAI(a.proxy.models))
	r.Post("/embeddings", openAI(a.proxy.passThrough))
	r.With(agentPath(openAIError)).Post("/agents/{id}/chat/completions", openAI(a.proxy.chat))
	r.With(agentPath(openAIError)).Get("/agents/{id}/models", openAI(a.proxy.models))
}

func noRoute(http.ResponseWriter, *http.Request) error {
	return fault.New(fault.NotFound, "no Route matched with those values")
}
