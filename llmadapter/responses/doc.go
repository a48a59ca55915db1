// Package responses translates between OpenAI's Responses API and chat completions. Parse reads a
// request, Request.Chat returns it as a chat completions request, and Writer turns the chat
// completion that answers it into a response or its events.
//
// The wire facts are those of OpenAI's public API reference
// (https://platform.openai.com/docs/api-reference/responses).
package responses
