// Package llmadapter stands between the memory and an OpenAI-compatible LLM: it reads a chat-completions request, assembles
// the request that goes upstream, calls the upstream within limits of time, and relays the answer byte for byte while it
// reads on the side what was said.
//
// The package knows nothing of agents and stores: package turn joins the two. Parsing and assembly are pure functions.
// The rules about streams, headers and errors come from reference/proxies.md (the design rules at its end), the forms of
// requests from reference/agora-api.md sections 2.1, 3 and 4.
package llmadapter
