package llmadapter

import (
	"net/url"
	"strings"
)

// AzureKeyHeader is the header for the key of Azure OpenAI.
const AzureKeyHeader = "Api-Key"

// The api-version for URLs of Azure OpenAI without one. URLs under /openai/v1 need none.
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

// IsAzure reports whether an upstream is Azure OpenAI: by its vendor, or by its host.
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

// ChatURL returns the URL of chat completions for a URL that may be that or a base of it, such as
// https://llm.example/v1. With exact, as for an agent's llm.url, only a URL without a path, or with
// a version as its last segment, is a base, and any other is used as it is. A base of Azure is a
// resource, …/openai/v1, or a deployment; api-version is added if Azure requires it and the URL has
// none.
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
	case strings.Contains(raw, chatPath): // an unknown path follows
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

// isBase reports whether a URL without query is a base: it ends with its host, or with a version.
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

// azureBase returns the part before chatPath. A resource alone gets the API in which the model is
// the deployment's name.
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

// azureVersion returns the api-version that a path requires, or "".
func azureVersion(path string) string {
	switch {
	case strings.Contains(path, azureDeployed):
		return azureDeploymentVersion
	case strings.HasSuffix(path, azureModels+chatPath):
		return azureModelsVersion
	}
	return ""
}

// hasParameter reports whether a query has a parameter.
func hasParameter(query, name string) bool {
	for p := range strings.SplitSeq(query, "&") {
		if key, _, _ := strings.Cut(p, "="); strings.EqualFold(key, name) {
			return true
		}
	}
	return false
}

// BeneathChat returns the URL of path, such as /models, beside a URL of chat completions, with more
// added to its query. ok is false if chat does not end with /chat/completions.
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
