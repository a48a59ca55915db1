package tests

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestAgoraTokens: a token that Agora's clients make of the app ID and its certificate opens what
// Agora's own API has, for this app alone.
func TestAgoraTokens(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../internal/agoratoken/testdata/tokens.json")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		AppID            string `json:"app_id"`
		Certificate      string `json:"certificate"`
		OtherCertificate string `json:"other_certificate"`
		Tokens           map[string]string
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	header := func(name string) []string { return []string{"Authorization", "agora token=" + f.Tokens[name]} }
	base := "/api/conversational-ai-agent/v2/projects/"
	app := base + f.AppID
	s := start(t, twoTenants, "HEARDLOG_AGORA_CERTIFICATES="+f.AppID+"="+f.OtherCertificate+","+f.AppID+"="+f.Certificate)
	join := `{"name":"n","properties":{"channel":"room-1","token":"t","agent_rtc_uid":"0","remote_rtc_uids":["1"],"llm":{"url":"http://127.0.0.1:1"},"tts":{"vendor":"x","params":{"k":"v"}}}}`
	var joined struct {
		AgentID string `json:"agent_id"`
	}
	s.post(app+"/join", join, header("convoai")...).ok(&joined)
	for _, name := range []string{"rtc_rtm", "user_account", "convoai", "other_certificate"} {
		s.get(app+"/agents/"+joined.AgentID+"/history", header(name)...).ok(nil)
		s.get("/cn"+app+"/agents", "Authorization", `agora token="`+f.Tokens[name]+`"`).ok(nil)
		s.get("/v1/agents/"+joined.AgentID, header(name)...).ok(nil)
	}
	for name, words := range map[string]string{
		"short": "expired", "rtc_only": "RTC", "rtm_only": "RTM", "chat": "RTM", "other_app": "HEARDLOG_AGORA_CERTIFICATES",
	} {
		s.get(app+"/agents", header(name)...).refused(http.StatusUnauthorized, "InvalidPermission", words)
	}
	changed := strings.Replace(f.Tokens["convoai"], "x", "y", 1)
	s.get(app+"/agents", "Authorization", "agora token="+changed).refused(http.StatusUnauthorized, "InvalidPermission", "Agora token")
	s.get(app+"/agents", "Authorization", "Bearer "+f.Tokens["convoai"]).refused(http.StatusUnauthorized, "InvalidPermission", "not valid")
	// Apps of end users may hold such tokens.
	s.get(base+"p1/agents", header("convoai")...).refused(http.StatusNotFound, "TaskNotFound", "project not found")
	s.do("DELETE", app+"/agents/"+joined.AgentID, nil, header("convoai")...).refused(http.StatusForbidden, "InvalidPermission", "admin")
	s.get("/v1/webhooks/endpoints", header("convoai")...).refused(http.StatusForbidden, "InvalidPermission", "webhooks")
	s.get(base+"p1/agents", "Authorization", basic("alice", "wonder")).ok(nil) // other credentials go on
	s.post(app+"/agents/"+joined.AgentID+"/leave", nil, header("convoai")...).ok(nil)
	if strings.Contains(s.log.String(), f.Tokens["convoai"]) || strings.Contains(s.log.String(), f.Certificate) {
		t.Error("the log has a token or a certificate")
	}

	// Without a certificate the answer names the setting. A certificate alone closes a server.
	none := start(t, twoTenants)
	none.get(app+"/agents", header("convoai")...).refused(http.StatusUnauthorized, "InvalidPermission", "HEARDLOG_AGORA_CERTIFICATES")
	none.get(app+"/agents", "Authorization", "agora token=007x").refused(http.StatusUnauthorized, "InvalidPermission", "HEARDLOG_AGORA_CERTIFICATES")
	alone := start(t, "HEARDLOG_AGORA_CERTIFICATES="+f.AppID+"="+f.Certificate)
	alone.get(app+"/agents").refused(http.StatusUnauthorized, "InvalidPermission", "Missing")
	alone.get(app+"/agents", header("convoai")...).ok(nil)
}
