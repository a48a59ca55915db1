package llmadapter

import (
	"net/url"
	"strings"
)

// AzureKeyHeader carries the key of Azure OpenAI, as it is.
const AzureKeyHeader = "Api-Key"

// The version that a URL of Azure OpenAI gets which names none. A URL under /openai/v1 needs none.
const (
	azureDeploymentVersion = "2024-10-21"
	azureModelsVersion     = "2024-05-01-preview"
)

const (
	chatPath       = "/chat/completions"
	azureVendor    = "azure"
	azureDeployed  = "/openai/deployments/"
	azureModels    = "/models"
	apiVersionName = "api-version"
)

// IsAzure tells whether an upstream is asked as Azure OpenAI wants it: its vendor says so, or its host is one of Azure's.
func IsAzure(raw, vendor string) bool {
	if strings.EqualFold(vendor, azureVendor) {
		return true
	}
	if !strings.Contains(raw, ".azure.") && !strings.Contains(raw, ".AZURE.") {
		return false
	}
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	for _, end := range []string{"openai", "cognitiveservices", "services.ai"} {
		for _, cloud := range []string{".azure.com", ".azure.us", ".azure.cn"} {
			if strings.HasSuffix(host, "."+end+cloud) {
				return true
			}
		}
	}
	return false
}

// ChatURL gives the address of chat completions for a URL that may be that address or a base of it, such as https://llm.example/v1. With exact set,
// as for an agent's llm.url (reference/agora-api.md 2.1), only a URL without a path or one whose last segment is a version counts as a base, and any
// other is called as it is. A base of Azure is a resource, …/openai/v1, or a deployment; api-version is added where Azure asks for it and the URL has none.
func ChatURL(raw string, azure, exact bool) string {
	base, query, _ := strings.Cut(raw, "?")
	path := strings.TrimSuffix(base, "/")
	switch {
	case raw == "", strings.HasSuffix(path, chatPath):
		path = base
	case azure:
		path = azureBase(path) + chatPath
	case exact && !isBase(base):
		return raw
	case strings.Contains(raw, chatPath): // in front of something that we do not know
		return raw
	default:
		path += chatPath
	}
	if azure && !hasParameter(query, apiVersionName) {
		if v := azureVersion(path); v != "" {
			if query != "" {
				query += "&"
			}
			query += apiVersionName + "=" + v
		}
	}
	if query == "" {
		return path
	}
	return path + "?" + query
}

// isBase tells whether a URL (without its query) can be no address of chat completions: it ends in its host, or in a version.
func isBase(base string) bool {
	_, rest, ok := strings.Cut(base, "://")
	if !ok {
		return false
	}
	_, path, ok := strings.Cut(rest, "/")
	if !ok {
		return true
	}
	path = strings.TrimSuffix(path, "/")
	last := path[strings.LastIndexByte(path, '/')+1:]
	return len(last) >= 2 && len(last) <= 8 && last[0] == 'v' && last[1] >= '0' && last[1] <= '9'
}

// azureBase gives the path before chatPath: a resource alone is asked by the API that takes the deployment's name as model.
func azureBase(path string) string {
	_, rest, _ := strings.Cut(path, "://")
	_, rest, _ = strings.Cut(rest, "/")
	switch rest {
	case "":
		return path + "/openai/v1"
	case "openai":
		return path + "/v1"
	}
	return path
}

// azureVersion gives the version for a path that has to have one.
func azureVersion(path string) string {
	switch {
	case strings.Contains(path, azureDeployed):
		return azureDeploymentVersion
	case strings.HasSuffix(path, azureModels+chatPath):
		return azureModelsVersion
	}
	return ""
}

func hasParameter(query, name string) bool {
	for p := range strings.SplitSeq(query, "&") {
		if key, _, _ := strings.Cut(p, "="); strings.EqualFold(key, name) {
			return true
		}
	}
	return false
}

// BeneathChat gives the address of path, such as /models, beside an address of chat completions, with more behind its query; ok is false where it ends
// in another way.
func BeneathChat(chat, path, more string) (_ string, ok bool) {
	base, query, _ := strings.Cut(chat, "?")
	if base, ok = strings.CutSuffix(strings.TrimSuffix(base, "/"), chatPath); !ok {
		return "", false
	}
	base += path
	if more != "" && query != "" {
		more = "&" + more
	}
	if query += more; query != "" {
		base += "?" + query
	}
	return base, true
}
