package handlers

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/page"
)

// agora and openAI turn a handler into one for callers with a scope. It answers errors in the form
// of its path. A test requires every path without a scope to be listed there as public.
func agora(need access.Scope, f handlerFunc) http.HandlerFunc {
	if need != read {
		f = acknowledges(f)
	}
	return handle(agoraError, needs(need, checkParams(f)))
}

// deletes is agora for the handler of a DELETE. Deleting a missing resource is not an error.
func deletes(need access.Scope, f handlerFunc) http.HandlerFunc {
	return agora(need, func(w http.ResponseWriter, r *http.Request) error {
		err := f(w, r)
		if fault.Is(err, fault.NotFound) {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return err
	})
}

func openAI(need access.Scope, f handlerFunc) http.HandlerFunc {
	return handle(openAIError, needs(need, f))
}

// public is for callers without credentials.
func public(f handlerFunc) http.HandlerFunc { return handle(agoraError, f) }

// The scopes of the routes. Package access describes them.
const (
	read  = access.Read
	write = access.Write
	proxy = access.Proxy
	hooks = access.Webhooks
	admin = access.Admin
)

// routes returns the URL map.
func (a *api) routes(c Config) *chi.Mux {
	enter, limit := c.Access.enter, rateLimit(c.Quota, c.Metrics.limited)
	r, flat := chi.NewRouter(), chi.NewRouter() // flat is filled below
	r.Use(observer{c.Log, c.Metrics, c.BodyTimeout}.middleware)
	c.Access.guesses, c.Access.now = access.NewGuesses(c.Now), c.Now
	r.Use(straighten)
	r.Use(withDurable(c.Durable))
	pages := crossOrigin(c.Origins)
	r.Use(c.Access.localOnly(c.Origins))
	r.NotFound(unknownPath)
	r.MethodNotAllowed(methodNotAllowed(flat))

	r.Get("/healthz", healthz)
	r.Get("/readyz", public(a.ops.readyz))
	r.Method(http.MethodGet, "/metrics", a.ops.metricsPage)
	r.Get("/openapi.yaml", a.ops.spec)
	r.Get(signInPath, public(a.signIn.begin))
	r.Get(signInPath+"/callback", public(a.signIn.finish))
	r.Get(metadataPath, public(a.signIn.metadata("")))
	r.Get(metadataPath+mcpPath, public(a.signIn.metadata(mcpPath)))
	r.Get("/docs", page.APIDocs(c.UI))
	r.Get("/docs/openapi.yaml", page.APIDescription)
	r.Get("/docs/viewer.js", page.APIViewer)
	r.Method(http.MethodGet, "/docs/guide", http.RedirectHandler("/docs/guide/"+page.GuideIndex, http.StatusFound))
	r.Get("/docs/guide/{file}", public(guideFile(c.UI)))
	r.Get("/docs/guide/{folder}/{file}", public(guideFile(c.UI)))
	if c.UI {
		document := page.Document(c.Access.OIDC != nil && c.Access.OIDC.ClientID != "")
		for _, path := range page.Paths() {
			r.Get(path, document)
		}
		r.Get("/page/{file}", public(pageFile))
	}

	r.Group(func(r chi.Router) {
		r.Use(pages, enter(agoraError), limit(agoraError))
		r.Post(mcpPath, agora(read, a.mcp.serve))
	})

	for base, kind := range map[string]joinKind{
		"/api/conversational-ai-agent/v2/projects/{appid}":    joinAgora,
		"/cn/api/conversational-ai-agent/v2/projects/{appid}": joinCN,
	} {
		r.Route(base, func(r chi.Router) {
			r.Use(pages, enter(agoraError), limit(agoraError))
			a.agentRoutes(r, kind)
			r.Get("/agents", agora(read, shows(a.agents.agoraList)))
		})
	}
	r.Route("/v1", func(r chi.Router) {
		r.Use(pages)
		r.Group(func(r chi.Router) {
			r.Use(enter(agoraError), limit(agoraError))
			a.agentRoutes(r, joinV1)
			a.projectRoutes(r)
			r.Route("/webhooks", a.webhookRoutes)
		})
		// A signature takes the place of credentials.
		r.Post("/ingest/agora", public(acknowledges(a.notices.receive)))
		r.Post("/ingest/{platform}", a.notices.call(enter(agoraError)(limit(agoraError)(agora(write, a.notices.enteredCall)))))
		r.Get("/webhooks/fetch/{token}", public(a.webhooks.fetch)) // so does the token
		r.Group(func(r chi.Router) {
			r.Use(enter(openAIError), limit(openAIError))
			a.chatRoutes(r)
			r.Post("/realtime/client_secrets", openAI(proxy, a.realtime.createSecret))
		})
		r.Group(func(r chi.Router) {
			r.Use(a.realtime.enter(openAIError), limit(openAIError))
			relay := openAI(proxy, c.Access.whileValid(a.realtime.serve))
			r.Get("/realtime", relay)
			r.With(agentPath(openAIError)).Get("/agents/{id}/realtime", relay)
		})
		r.Group(func(r chi.Router) {
			r.Use(enter(bothErrors), limit(bothErrors))
			a.conversationRoutes(r)
		})
		if len(c.PassThrough) > 0 {
			r.NotFound(enter(openAIError)(limit(openAIError)(openAI(proxy, a.proxy.passThrough))).ServeHTTP)
		}
	})
	flatten(r, flat)
	a.proxy.own, a.mcp.routes, a.socket.routes = ownNames(r), r, r
	return r
}

// agentRoutes adds the paths that exist under every base.
func (a *api) agentRoutes(r chi.Router, kind joinKind) {
	act := a.audit.of
	h := func(need access.Scope, f handlerFunc) http.HandlerFunc {
		return agora(need, touching(a.agents.memory, reads(f)))
	}
	r.Post("/join", agora(write, a.agents.join(kind)))
	r.Post("/join/", agora(write, a.agents.join(kind)))    // some of Agora's material has the slash
	r.Post("/agents/{id}/leave", h(write, a.agents.leave)) // not below: the id may be a key
	r.Route("/agents/{id}", func(r chi.Router) {
		r.Use(agentPath(agoraError))
		if kind == joinV1 {
			r.Get("/", h(read, shows(a.agents.get)))
			r.Patch("/", h(write, a.agents.patch))
		} else {
			r.Get("/", h(read, shows(a.agents.agoraGet)))
		}
		r.Delete("/", act("agent.erase", deletes(admin, a.agents.erase)))
		r.Post("/update", h(write, a.agents.update))

		r.Post("/speak", h(write, a.speech.speak))
		r.Post("/think", h(write, a.speech.think))
		r.Post("/interrupt", h(write, a.speech.interrupt(kind)))
		r.Post("/evidence/{platform}", h(write, a.evidence.ofAgent))

		r.Get("/history", h(read, a.messages.history))
		r.Get("/turns", h(read, shows(a.messages.turns)))
		r.Post("/messages", h(write, a.messages.append))
		r.Get("/messages", h(read, shows(a.messages.list)))
		r.Get("/events", h(read, a.keys.access.whileValid(a.tails.stream)))

		if kind == joinV1 {
			r.Get("/turns/{turn_id}/requests", h(read, shows(a.messages.requests)))
			a.holdRoutes(r, "/hold", heldAgent)
			r.Post("/recall", h(read, a.recall.ofAgent))
			r.Post("/scores", h(write, a.agents.setScore))
			r.Get("/scores", h(read, shows(a.agents.scores)))
			r.Get("/checks", h(read, shows(a.agents.checks)))
			r.Delete("/scores/{score}", deletes(write, gone(a.agents.deleteScore)))
			r.Post("/pause", h(write, a.agents.pause))
			r.Post("/resume", h(write, shows(a.agents.resume)))
			r.Post("/checkpoints", h(write, a.checkpoints.save))
			r.Get("/checkpoints", agora(read, shows(a.checkpoints.list)))
			r.Delete("/checkpoints/{checkpoint}", deletes(write, gone(a.checkpoints.delete)))
			r.Post("/checkpoints/{checkpoint}/restore", h(write, a.checkpoints.restore))
		}
		r.Post("/context", h(read, a.context.build))
		r.Get("/snapshot", h(read, a.context.snapshot))
		r.Put("/snapshot", h(write, a.context.restore))
		r.Get("/summarizable", h(read, a.context.summarizable))
		r.Post("/trim", h(write, takes(a.bodies, a.context.trim)))
		r.Post("/repair", h(write, a.context.repair))
		r.Post("/clear", h(write, a.context.clear))
		r.Get("/summary", h(read, shows(a.context.summary)))
		r.Put("/summary", h(write, takes(a.bodies, a.context.putSummary)))
		r.Delete("/summary", deletes(write, touching(a.agents.memory, gone(a.context.deleteSummary))))

		working := a.kv.working()
		r.Get("/working-memory", h(read, shows(working.list)))
		r.Delete("/working-memory", deletes(write, touching(a.agents.memory, gone(working.clear))))
		r.Get("/working-memory/{key}", h(read, working.get))
		r.Put("/working-memory/{key}", h(write, working.put))
		r.Delete("/working-memory/{key}", deletes(write, touching(a.agents.memory, gone(working.delete))))
	})
}

// projectRoutes adds what belongs to a project and exists under /v1 alone.
func (a *api) projectRoutes(r chi.Router) {
	act, b := a.audit.of, a.bodies
	r.Post("/agents", agora(write, a.agents.join(joinV1)))
	r.Get("/agents", agora(read, reads(shows(a.agents.find))))
	r.Post("/leave", agora(write, a.agents.leaveCall))
	r.Post("/evidence/{platform}", agora(write, a.evidence.ofCall))
	r.Get("/profiles", agora(read, a.proxy.profiles))
	r.Get("/usage", agora(read, shows(a.usage.get)))
	r.Get("/overview", agora(read, shows(a.overview.get)))
	r.Get("/reports", agora(read, a.reports.get))
	r.Post("/replays", agora(write, a.replays.start))
	r.Get("/replays", agora(read, shows(a.replays.list)))
	r.Get("/replays/{replay}", agora(read, shows(a.replays.get)))
	r.Delete("/replays/{replay}", deletes(write, gone(a.replays.delete)))
	r.Get("/policies", agora(read, a.context.policies))
	r.Post("/memory-model/validate", agora(read, a.models.checkModel))
	r.Get("/jobs", agora(read, shows(a.listJobs)))
	r.Get("/memory-models", agora(read, shows(a.models.list)))
	r.Put("/memory-models/{name}", agora(write, a.models.put))
	r.Get("/memory-models/{name}", agora(read, shows(a.models.get)))
	r.Delete("/memory-models/{name}", deletes(write, gone(a.models.delete)))

	r.Get("/saved-conversations", agora(read, shows(a.saved.list)))
	r.Delete("/saved-conversations", deletes(write, gone(a.saved.clear)))
	r.Put("/saved-conversations/{id}", agora(write, a.saved.save))
	r.Get("/saved-conversations/{id}", agora(read, a.saved.get))
	r.Delete("/saved-conversations/{id}", deletes(write, gone(a.saved.delete)))
	// The paths that they had before; see also conversationRoutes.
	r.Get("/conversations", agora(read, moved(shows(a.saved.list))))
	r.Delete("/conversations", deletes(write, moved(gone(a.saved.clear))))
	r.Put("/conversations/{id}", agora(write, moved(a.saved.saveMoved)))

	r.Get("/kv", agora(read, shows(a.kv.names)))
	r.Get("/kv/{namespace}", agora(read, shows(a.kv.list)))
	r.Delete("/kv/{namespace}", deletes(write, gone(a.kv.clear)))
	r.Post("/kv/{namespace}/search", agora(read, takes(b, a.kv.search)))
	r.Post("/kv/{namespace}/gc", agora(write, takes(b, a.kv.evict)))
	r.Post("/kv/{namespace}/batch/get", agora(read, takes(b, a.kv.getMany)))
	r.Post("/kv/{namespace}/batch/set", agora(write, a.kv.putMany))
	r.Put("/kv/{namespace}/{key}", agora(write, a.kv.put))
	r.Get("/kv/{namespace}/{key}", agora(read, a.kv.get))
	r.Delete("/kv/{namespace}/{key}", deletes(write, gone(a.kv.delete)))
	r.Post("/kv/{namespace}/{key}/expire", agora(write, takes(b, a.kv.expire)))
	r.Post("/kv/{namespace}/{key}/increment", agora(write, a.kv.increment))

	r.Get("/embeddings/models", agora(read, shows(a.vectors.models)))
	r.Post("/embeddings/rebuild", agora(write, a.vectors.rebuild))
	r.Get("/vectors", agora(read, shows(a.vectors.collections)))
	r.Post("/vectors/{collection}", agora(write, a.vectors.add))
	r.Get("/vectors/{collection}", agora(read, shows(a.vectors.list)))
	r.Delete("/vectors/{collection}", deletes(write, gone(a.vectors.clear)))
	r.Post("/vectors/{collection}/search", agora(read, takes(b, a.vectors.search)))
	r.Post("/vectors/{collection}/delete", agora(write, takes(b, a.vectors.deleteMany)))
	r.Put("/vectors/{collection}/{id}", agora(write, a.vectors.put))
	r.Get("/vectors/{collection}/{id}", agora(read, shows(a.vectors.get)))
	r.Delete("/vectors/{collection}/{id}", deletes(write, gone(a.vectors.delete)))

	r.Get("/knowledge", agora(read, shows(a.knowledge.bases)))
	r.Put("/knowledge/{base}", agora(write, takes(b, a.knowledge.putBase)))
	r.Get("/knowledge/{base}", agora(read, shows(a.knowledge.base)))
	r.Delete("/knowledge/{base}", deletes(write, gone(a.knowledge.deleteBase)))
	r.Get("/knowledge/{base}/entries", agora(read, shows(a.knowledge.list)))
	r.Put("/knowledge/{base}/entries/{id}", agora(write, takes(b, a.knowledge.put)))
	r.Get("/knowledge/{base}/entries/{id}", agora(read, shows(a.knowledge.get)))
	r.Delete("/knowledge/{base}/entries/{id}", deletes(write, gone(a.knowledge.delete)))
	r.Get("/knowledge/{base}/entries/{id}/versions", agora(read, shows(a.knowledge.versions)))
	r.Post("/knowledge/{base}/search", agora(read, takes(b, a.knowledge.search)))
	r.Post("/knowledge/{base}/imports", agora(write, a.knowledge.startImport))
	r.Get("/knowledge/{base}/imports", agora(read, shows(a.knowledge.imports)))
	r.Get("/knowledge/{base}/imports/{id}", agora(read, shows(a.knowledge.getImport)))

	r.Get("/patterns", agora(read, shows(a.patterns.list)))
	r.Put("/patterns/{id}", agora(write, takes(b, a.patterns.put)))
	r.Get("/patterns/{id}", agora(read, shows(a.patterns.get)))
	r.Delete("/patterns/{id}", deletes(write, gone(a.patterns.delete)))
	r.Post("/patterns/{id}/feedback", agora(write, takes(b, a.patterns.feedback)))

	r.Post("/memories", agora(write, a.items.add))
	r.Post("/memories/search", agora(read, mayTake(b, a.items.search)))
	r.Post("/memories/clear", agora(write, mayTake(b, a.items.clear)))
	r.Get("/memories/{id}", agora(read, shows(a.items.get)))
	r.Post("/memories/{id}/status", agora(write, takes(b, a.items.setStatus)))
	r.Post("/recall", agora(read, a.recall.search))

	r.Get("/users/{user}/facts", agora(read, shows(a.facts.list)))
	r.Post("/users/{user}/facts", agora(write, a.facts.add))
	r.Delete("/users/{user}/facts", deletes(write, gone(a.facts.clear)))
	r.Post("/users/{user}/facts/search", agora(read, mayTake(b, a.facts.search)))
	r.Post("/users/{user}/facts/decay", agora(write, mayTake(b, a.facts.decayAll)))
	r.Post("/users/{user}/facts/extract", agora(write, takes(b, a.facts.extract)))
	r.Get("/users/{user}/facts/context", agora(read, shows(a.facts.context)))
	r.Get("/users/{user}/facts/{id}", agora(read, shows(a.facts.get)))
	r.Patch("/users/{user}/facts/{id}", agora(write, takes(b, a.facts.change)))
	r.Delete("/users/{user}/facts/{id}", deletes(write, gone(a.facts.remove)))
	r.Get("/users/{user}/facts/{id}/history", agora(read, shows(a.facts.history)))
	r.Post("/users/{user}/facts/{id}/reinforce", agora(write, a.facts.act(a.facts.facts.Reinforce)))
	r.Post("/users/{user}/facts/{id}/accept", agora(write, a.facts.act(a.facts.facts.Accept)))
	r.Post("/users/{user}/facts/{id}/undo", agora(write, a.facts.act(a.facts.facts.Undo)))
	r.Post("/users/{user}/facts/{id}/decay", agora(write, mayTake(b, a.facts.decay)))

	r.Get("/session", agora(read, sessionAPI{a.keys.access}.get))
	r.Post("/session", act("session.create", agora(read, sessionAPI{a.keys.access}.create)))
	r.Delete("/session", agora(read, sessionAPI{a.keys.access}.delete))
	r.Post("/keys", act("key.create", agora(admin, a.keys.create)))
	r.Get("/keys", agora(admin, shows(a.keys.list)))
	r.Get("/audit", agora(admin, shows(a.audit.list)))
	r.Delete("/keys/{id}", act("key.revoke", deletes(admin, gone(a.keys.revoke))))

	r.Get("/users", agora(read, shows(a.callers.list)))
	r.Get("/users/{user}", agora(read, shows(a.callers.get)))
	r.Get("/users/{user}/export", agora(read, a.callers.export))
	r.Put("/users/{user}/aliases", agora(write, takes(b, a.callers.putAliases)))
	r.Put("/users/{user}/consent", agora(write, takes(b, a.callers.putConsent)))
	a.holdRoutes(r, "/users/{user}/hold", heldUser)
	a.holdRoutes(r, "/labels/{label}/{value}/hold", heldLabel)
	r.Get("/holds", agora(admin, shows(a.holds.list)))
	r.Delete("/users/{user}", act("user.erase", agora(admin, shows(a.erase.user))))
	r.Get("/erasures", agora(admin, shows(a.erase.list)))
	r.Get("/erasures/{id}", agora(admin, shows(a.erase.get)))
	r.Delete("/projects/{project}", act("project.erase", agora(admin, shows(a.erase.project))))
}

// webhookRoutes adds the calls about webhooks that need credentials.
func (a *api) webhookRoutes(r chi.Router) {
	act, b := a.audit.of, a.bodies
	r.Get("/event-types", agora(hooks, a.webhooks.eventTypes))

	r.Post("/endpoints", act("endpoint.create", agora(hooks, a.webhooks.createEndpoint)))
	r.Get("/endpoints", agora(hooks, shows(a.webhooks.endpoints)))
	r.Get("/endpoints/{id}", agora(hooks, shows(a.webhooks.endpoint)))
	r.Patch("/endpoints/{id}", act("endpoint.update", agora(hooks, a.webhooks.patchEndpoint)))
	r.Put("/endpoints/{id}", act("endpoint.update", agora(hooks, a.webhooks.putEndpoint)))
	r.Delete("/endpoints/{id}", act("endpoint.delete", deletes(hooks, gone(a.webhooks.deleteEndpoint))))
	r.Post("/endpoints/{id}/secrets", act("endpoint.secret.create", agora(hooks, a.webhooks.rotateSecret)))
	r.Delete("/endpoints/{id}/secrets/{secret_id}", act("endpoint.secret.revoke", deletes(hooks, gone(a.webhooks.revokeSecret))))
	r.Post("/endpoints/{id}/enable", act("endpoint.enable", agora(hooks, shows(a.webhooks.switchEndpoint(true)))))
	r.Post("/endpoints/{id}/disable", act("endpoint.disable", agora(hooks, shows(a.webhooks.switchEndpoint(false)))))
	r.Post("/endpoints/{id}/test", agora(hooks, a.webhooks.testEndpoint))

	r.Get("/messages", agora(hooks, shows(a.webhooks.messages)))
	r.Get("/messages/{id}", agora(hooks, shows(a.webhooks.message)))
	r.Get("/deliveries", agora(hooks, shows(a.webhooks.deliveries)))
	r.Get("/deliveries/{id}", agora(hooks, a.webhooks.delivery))
	r.Post("/deliveries/{id}/replay", agora(hooks, a.webhooks.replayDelivery))
	r.Post("/deliveries/{id}/cancel", agora(hooks, shows(a.webhooks.cancelDelivery)))
	r.Post("/replays", agora(hooks, takes(b, a.webhooks.replays)))
}

// chatRoutes adds the paths that imitate OpenAI's.
func (a *api) chatRoutes(r chi.Router) {
	r.Post("/chat/completions", openAI(proxy, a.proxy.chat))
	r.Post("/responses", openAI(proxy, a.proxy.respond))
	r.Get("/responses", openAI(proxy, a.socket.serve))
	r.Get("/responses/{response}", openAI(proxy, a.proxy.response))
	r.Delete("/responses/{response}", openAI(write, acknowledges(a.proxy.deleteResponse)))
	r.Get("/responses/{response}/input_items", openAI(proxy, a.proxy.inputItems))
	r.Post("/conversations", openAI(write, acknowledges(a.conversations.create)))
	r.Post("/conversations/{id}", openAI(write, acknowledges(a.conversations.update)))
	r.Get("/conversations/{id}/items", openAI(read, a.conversations.listItems))
	r.Post("/conversations/{id}/items", openAI(write, acknowledges(a.conversations.addItems)))
	r.Get("/conversations/{id}/items/{item}", openAI(read, a.conversations.getItem))
	r.Delete("/conversations/{id}/items/{item}", openAI(write, acknowledges(a.conversations.deleteItem)))
	r.Get("/models", openAI(proxy, a.proxy.models))
	r.Get("/models/{model}", openAI(proxy, a.proxy.models))
	r.Post("/embeddings", openAI(proxy, a.proxy.passThrough))
	r.With(agentPath(openAIError)).Post("/agents/{id}/chat/completions", openAI(proxy, a.proxy.chat))
	r.With(agentPath(openAIError)).Post("/agents/{id}/responses", openAI(proxy, a.proxy.respond))
	r.With(agentPath(openAIError)).Get("/agents/{id}/responses", openAI(proxy, a.socket.serve))
	r.With(agentPath(openAIError)).Get("/agents/{id}/responses/{response}", openAI(proxy, a.proxy.response))
	r.With(agentPath(openAIError)).Delete("/agents/{id}/responses/{response}", openAI(write, acknowledges(a.proxy.deleteResponse)))
	r.With(agentPath(openAIError)).Get("/agents/{id}/responses/{response}/input_items", openAI(proxy, a.proxy.inputItems))
	r.With(agentPath(openAIError)).Get("/agents/{id}/models", openAI(proxy, a.proxy.models))
	r.With(agentPath(openAIError)).Get("/agents/{id}/models/{model}", openAI(proxy, a.proxy.models))
}

// conversationRoutes adds the paths of single conversations, which those of OpenAI's API and saved
// ones share. Errors that come before the ID is read have both forms.
func (a *api) conversationRoutes(r chi.Router) {
	c := a.conversations
	r.Get("/conversations/{id}", conversationNamed(openAI(read, c.get), agora(read, moved(a.saved.get))))
	r.Delete("/conversations/{id}", conversationNamed(
		a.audit.of("agent.erase", openAI(admin, acknowledges(c.delete))), deletes(write, moved(gone(a.saved.delete))),
	))
}
