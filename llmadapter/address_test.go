package llmadapter_test

import (
	"testing"

	"github.com/heardlog/heardlog/llmadapter"
)

func TestChatURL(t *testing.T) {
	t.Parallel()
	const dep = "https://r.openai.azure.com/openai/deployments/d"
	for _, tt := range []struct {
		raw, vendor string
		exact       bool
		want        string
	}{
		{"https://llm.example/v1", "", false, "https://llm.example/v1/chat/completions"},
		{"https://llm.example/v1/", "", false, "https://llm.example/v1/chat/completions"},
		{"https://llm.example", "", false, "https://llm.example/chat/completions"},
		{"https://llm.example/api/openai", "", false, "https://llm.example/api/openai/chat/completions"},
		{"https://llm.example/v1/chat/completions", "", false, "https://llm.example/v1/chat/completions"},
		{"https://llm.example/v1/chat/completions?k=v", "", false, "https://llm.example/v1/chat/completions?k=v"},
		{"https://llm.example/v1?k=v", "", false, "https://llm.example/v1/chat/completions?k=v"},
		{"https://llm.example/chat/completions/stream", "", false, "https://llm.example/chat/completions/stream"},
		{"", "", false, ""},
		// An agent's llm.url is called as it is, unless it can be nothing but a base.
		{"https://llm.example/answer", "", true, "https://llm.example/answer"},
		{"https://llm.example/", "", true, "https://llm.example/"},
		{"https://llm.example/chat?x=/v1", "", true, "https://llm.example/chat?x=/v1"},
		{"https://llm.example/voice", "", true, "https://llm.example/voice"},
		{"https://llm.example", "", true, "https://llm.example/chat/completions"},
		{"https://llm.example/v1", "", true, "https://llm.example/v1/chat/completions"},
		{"https://llm.example/v1beta/", "", true, "https://llm.example/v1beta/chat/completions"},
		{"https://llm.example/v1/chat/completions", "", true, "https://llm.example/v1/chat/completions"},
		// Azure, by its hosts and by the vendor.
		{"https://r.openai.azure.com", "", true, "https://r.openai.azure.com/openai/v1/chat/completions"},
		{"https://r.services.ai.azure.com/openai/v1/", "", true, "https://r.services.ai.azure.com/openai/v1/chat/completions"},
		{"https://r.cognitiveservices.azure.com/openai", "", false, "https://r.cognitiveservices.azure.com/openai/v1/chat/completions"},
		{dep, "", true, dep + "/chat/completions?api-version=2024-10-21"},
		{dep + "/chat/completions", "", true, dep + "/chat/completions?api-version=2024-10-21"},
		{dep + "/chat/completions?api-version=2025-01-01-preview", "", true, dep + "/chat/completions?api-version=2025-01-01-preview"},
		{dep + "?a=b", "", true, dep + "/chat/completions?a=b&api-version=2024-10-21"},
		{"https://r.services.ai.azure.com/models", "", true, "https://r.services.ai.azure.com/models/chat/completions?api-version=2024-05-01-preview"},
		{"https://gateway.example/openai/deployments/d", "azure", true, "https://gateway.example/openai/deployments/d/chat/completions?api-version=2024-10-21"},
	} {
		azure := llmadapter.IsAzure(tt.raw, tt.vendor)
		if got := llmadapter.ChatURL(tt.raw, azure, tt.exact); got != tt.want {
			t.Errorf("%q, vendor %q, exact %v: %q, want %q", tt.raw, tt.vendor, tt.exact, got, tt.want)
		}
	}
}

func TestIsAzure(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		"https://r.openai.azure.com/x":                        true,
		"https://R.OPENAI.AZURE.COM:443/x":                    true,
		"https://r.openai.azure.com./x":                       true,
		"https://r.openai.azure.us":                           true,
		"https://r.cognitiveservices.azure.com":               true,
		"https://r.services.ai.azure.com":                     true,
		"https://r.openai.azure.com.evil.example":             false,
		"https://evil.example/?x=.openai.azure.com":           false,
		"https://notopenai.azure.com":                         false,
		"https://openai.azure.com@evil.example/.azure.com":    false,
		"https://llm.example/v1":                              false,
		"":                                                    false,
		"https://r.openai.azure.com\x00":                      false,
		"https://app.azurewebsites.net/openai/deployments/d/": false,
	} {
		if got := llmadapter.IsAzure(raw, "openai"); got != want {
			t.Errorf("%q: %v", raw, got)
		}
	}
}

func TestBeneathChat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ chat, path, more, want string }{
		{"https://h/v1/chat/completions", "/models", "", "https://h/v1/models"},
		{"https://h/v1/chat/completions?a=b", "/embeddings", "c=d", "https://h/v1/embeddings?a=b&c=d"},
		{"https://h/v1/chat/completions", "/files", "limit=1", "https://h/v1/files?limit=1"},
		{"https://h/answer", "/models", "", ""},
	} {
		if got, ok := llmadapter.BeneathChat(tt.chat, tt.path, tt.more); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s beneath %s: %q %v", tt.path, tt.chat, got, ok)
		}
	}
}
