// Package llmadapter talks to OpenAI-compatible LLMs. ParseRequest reads a client's chat
// completions request, Assembly builds the request for the upstream, Client sends it within time
// limits (Watch), and Relay passes on the response byte for byte while Record notes what was said.
//
// The package knows neither agents nor stores: package turn connects the two. Parsing and assembly
// are pure functions.
package llmadapter
