package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/webhook"
)

const ingestSecret = "a secret of agora's console"

// ingest sends a notification signed with the secret and returns the answer.
func (s *server) ingest(path, key, body string) answer {
	s.t.Helper()
	_, v2 := webhook.SignAgora(secret.String(key), []byte(body))
	return s.post(v1+"/ingest/agora"+path, body, "Agora-Signature-V2", v2)
}

// agoraNotice returns a notification of a call in the form of Agora's documentation.
func agoraNotice(id string, eventType int, more string) string {
	return fmt.Sprintf(`{"sid":"S1","noticeId":"%s:%d","productId":17,"eventType":%d,"notifyMs":1780000061000,"payload":{"agent_id":"%s","name":"desk","channel":"room-1","start_ts":1780000000%s}}`,
		id, eventType, eventType, id, more)
}

// agoraCall returns the notifications of one call.
func agoraCall(id string) map[int]string {
	return map[int]string{
		101: agoraNotice(id, 101, `,"labels":{"tenant":"t1"}`),
		102: agoraNotice(id, 102, `,"stop_ts":1780000060,"status":"STOPPED","message":"Idle for too long"`),
		103: agoraNotice(id, 103, `,"stop_ts":1780000060,"contents":[{"role":"assistant","content":"Hello!"},{"role":"user","content":"When is my train? \u0000","speech_start_ms":1780000009000,"metadata":{"note\u0000":"a\u0000b"}},
			{"role":"assistant","content":"The train leaves at "},{"role":"tool","content":"x"}]`),
		104: agoraNotice(id, 104, `,"message":"Task exceeded maximum lifetime"`),
		110: agoraNotice(id, 110, `,"turn_id":"2","errors":[{"module":"tts","turn_id":"2","code":"503","message":"busy"}]`),
		111: agoraNotice(id, 111, `,"metrics":[{"turn_id":"2","asr_ttlw":503,"llm_ttfb":601.5,"llm_ttfs":700,"tts_ttfb":80}]`),
		112: agoraNotice(id, 112, `,"total_turn_count":2,"is_truncated":false,"turns":[
			{"turn_id":1,"start":{"start_at":1780000001000,"type":"greeting","metadata":{"greeting_nth":1}},"end":{"end_at":1780000002000,"type":"ok","metadata":{}},"metrics":{}},
			{"turn_id":2,"start":{"start_at":1780000010000,"type":"voice_input","metadata":{}},"end":{"end_at":1780000013000,"type":"interrupted","metadata":{"caused_by":"start_of_speech"}},
			 "metrics":{"e2e_latency_ms":900,"segmented_latency_ms":{"asr_ttlw":200,"llm_ttft":600,"llm_ftfs":690}}}]`),
	}
}

// TestIngest files two calls whose notifications come mixed and twice, and reads the record like
// any other.
func TestIngest(t *testing.T) {
	t.Parallel()
	// These calls ended long ago.
	s := start(t, "HEARDLOG_INGEST_SECRETS=default="+ingestSecret, "HEARDLOG_RETENTION=0")
	for _, eventType := range []int{103, 112, 110, 101, 104, 102, 111} {
		for _, id := range []string{"A42", "A43"} {
			body := agoraCall(id)[eventType]
			for _, want := range []string{"success", "success, known already"} {
				var out struct {
					Code *int
					Msg  string
				}
				s.ingest("", ingestSecret, body).ok(&out)
				if out.Code == nil || *out.Code != 0 || out.Msg != want {
					t.Errorf("%d of %s: %+v, want %q", eventType, id, out, want)
				}
			}
		}
	}
	s = s.again() // it is on disk
	for _, id := range []string{"A42", "A43"} {
		var a struct {
			Name, Status, Message string
			StartTS               int64 `json:"start_ts"`
			StopTS                int64 `json:"stop_ts"`
		}
		s.get(agora + "/agents/" + id).ok(&a)
		if a.Name != "desk" || a.Status != "STOPPED" || !strings.Contains(a.Message, "Idle for too long") || a.StartTS != 1780000000 || a.StopTS != 1780000060 {
			t.Errorf("%+v", a)
		}
		h := s.history(id)
		var got []string
		for _, m := range h.Contents {
			got = append(got, fmt.Sprint(m.Role, " ", m.Content, " ", m.TurnID, " ", m.Timestamp-1780000000000, " ", m.Metadata["source"], " ", m.Metadata["interrupted"]))
		}
		if want := "[assistant Hello! 0 1000 greeting <nil> user When is my train? \uFFFD 1 9000 asr <nil> assistant The train leaves at  1 10900 llm true]"; fmt.Sprint(got) != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		var table struct {
			Channel string
			Turns   []struct {
				Start struct{ Type string }
				End   struct {
					Type     string
					Metadata map[string]any
				}
				Metrics struct {
					E2E int64 `json:"e2e_latency_ms"`
				}
			}
		}
		s.get(agent(id, "/turns")).ok(&table)
		if len(table.Turns) != 2 || table.Turns[0].Start.Type != "greeting" || table.Turns[1].End.Type != "interrupted" || table.Channel != "room-1" ||
			table.Turns[1].End.Metadata["caused_by"] != "start_of_speech" {
			t.Errorf("%+v", table)
		}
	}
	if page := string(s.get("/metrics").ok(nil).body); strings.Contains(page, ingestSecret) || strings.Contains(s.log.String(), ingestSecret) {
		t.Error("the secret came out")
	}
	s.post(agent("A42", "/messages"), user("x")).refused(http.StatusGone, "TaskNotFound", "runs at Agora")
	s.post(agent("A42", "/evidence/twilio"), `{"type":"interrupt","utteranceUntilInterrupt":"The train"}`).refused(http.StatusNotFound, "TaskNotFound", "runs at Agora")
}

// TestIngestNotFiled: notifications that are not about a conversation get a success, so that Agora
// does not repeat them.
func TestIngestNotFiled(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_INGEST_SECRETS=default="+ingestSecret)
	for body, want := range map[string]string{
		`{"sid":"S1","noticeId":"c","productId":17,"eventType":101,"notifyMs":1,"payload":{"channelName":"test_webhook","uid":12121212}}`: "success",
		`{"noticeId":"c","productId":1,"eventType":101,"payload":{"channelName":"test_webhook","uid":12121212}}`:                          "success",
		`{"noticeId":"d","productId":1,"eventType":101,"payload":{"channelName":"x"}}`:                                                    "ignored",
		`{"noticeId":"f","productId":3,"eventType":30,"payload":"text"}`:                                                                  "ignored",
		`{"noticeId":"g","productId":1,"eventType":101,"payload":{"status":7,"name":[],"contents":"x"}}`:                                  "ignored",
		`{"noticeId":"h","productId":1,"eventType":101}`:                                                                                  "ignored",
		`{"noticeId":"e","productId":17,"eventType":201,"payload":{"agent_id":"A1","state":"START"}}`:                                     "ignored",
	} {
		var out struct{ Msg string }
		s.ingest("", ingestSecret, body).ok(&out)
		if !strings.HasPrefix(out.Msg, want) {
			t.Errorf("%s: %q", body, out.Msg)
		}
	}
	if n := len(s.find("").Agents); n != 0 {
		t.Errorf("%d agents were made", n)
	}
	if page := string(s.get("/metrics").ok(nil).body); !strings.Contains(page, `heardlog_ingest_total{result="check",type="101"} 1`) {
		t.Error("the metrics do not count the health check")
	}
}

// TestIngestSignatures: each project has its own secrets, and answers do not show which projects
// have any.
func TestIngestSignatures(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_RETENTION=0", "HEARDLOG_CREDENTIALS=p1=id1:s1,p2=id2:s2", "HEARDLOG_INGEST_SECRETS=p1=old one,p1=new one,p2=other")
	body := agoraNotice("A1", 101, "")
	const wrong = "Agora-Signature-V2 does not match"
	// The default project is p1.
	s.ingest("", "other", body).refused(http.StatusUnauthorized, "InvalidPermission", wrong)
	s.ingest("?project=p1", "other", body).refused(http.StatusUnauthorized, "InvalidPermission", wrong)
	s.ingest("?project=p2", "new one", body).refused(http.StatusUnauthorized, "InvalidPermission", wrong)
	s.ingest("?project=nobody", "other", body).refused(http.StatusUnauthorized, "InvalidPermission", wrong)
	s.post(v1+"/ingest/agora", body, "Agora-Signature-V2", "").refused(http.StatusUnauthorized, "InvalidPermission", wrong)
	s.post(v1+"/ingest/agora", body, "Agora-Signature-V2", strings.Repeat("0", 64), "Authorization", "Bearer s1").refused(http.StatusUnauthorized, "InvalidPermission", wrong)
	s.get(v1+"/agents/A1", "Authorization", "Bearer s1").refused(http.StatusNotFound, "TaskNotFound")
	s.ingest("", "old one", body).ok(nil)
	s.ingest("?project=p1", "new one", agoraNotice("A2", 101, "")).ok(nil)
	s.ingest("?project=p2", "other", agoraNotice("A3", 101, "")).ok(nil)
	for id, token := range map[string]string{"A1": "s1", "A2": "s1", "A3": "s2"} {
		s.get(v1+"/agents/"+id, "Authorization", "Bearer "+token).ok(nil)
	}
	s.get(v1+"/agents/A3", "Authorization", "Bearer s1").refused(http.StatusNotFound, "TaskNotFound")
	if log := s.log.String(); strings.Contains(log, "new one") || strings.Contains(log, "old one") {
		t.Error("a secret stands in the log")
	}
}

// IDs that come as numbers, and numbers that come as strings, are accepted: if refused, the
// notification would be lost.
func TestIngestOtherForms(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_RETENTION=0", "HEARDLOG_INGEST_SECRETS=default="+ingestSecret)
	var out struct{ Msg string }
	s.ingest("", ingestSecret, `{"noticeId":4711,"productId":"17","eventType":"103","notifyMs":"1780000061000","payload":{"agent_id":815,"start_ts":"1780000000","contents":[{"role":"user","content":"x"}]}}`).ok(&out)
	if out.Msg != "success" {
		t.Errorf("%+v", out)
	}
	if n := len(s.history("815").Contents); n != 1 {
		t.Errorf("%d messages", n)
	}
	s.ingest("", ingestSecret, `{"noticeId":"4711","productId":17,"eventType":103,"payload":{"agent_id":"815","contents":[{"role":"user","content":"x"}]}}`).ok(&out)
	if out.Msg != "success, known already" {
		t.Errorf("the same in the usual form: %+v", out)
	}
}

func TestIngestRefused(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_RETENTION=0", "HEARDLOG_INGEST_SECRETS=default="+ingestSecret)
	own := s.join("mine", nil)
	s.ingest("", ingestSecret, agoraNotice(own, 103, `,"contents":[{"role":"user","content":"x"}]`)).refused(http.StatusConflict, "TaskConflict", own)
	if n := len(s.ledger(own)); n != 0 {
		t.Errorf("%d messages came into the record of an agent of ours", n)
	}
	for body, words := range map[string]string{
		`hello`: "", `[]`: "", `{"noticeId":[7]}`: "noticeId: must be a string, not a JSON array", `{"noticeId":"n","productId":17,"eventType":"left"}`: "eventType: must be a whole number, not a JSON string",
		`{"noticeId":"n","productId":17,"eventType":101,"payload":"x"}`:                "payload: must be an object, not a JSON string",
		agoraNotice("a/b", 101, ""):                                                    "payload.agent_id",
		`{"productId":17,"eventType":101,"payload":{"agent_id":"A"}}`:                  "noticeId: is required",
		`{"noticeId":"n","productId":17,"eventType":101,"payload":{}}`:                 "payload.agent_id: is required",
		`{"noticeId":"n","productId":17,"eventType":101,"payload":{"agent_id":["A"]}}`: "payload.agent_id: must be a string, not a JSON array",
		strings.Repeat("[", 70) + strings.Repeat("]", 70):                              "deeper",
	} {
		got := s.ingest("", ingestSecret, body)
		var e struct{ Detail string }
		if err := json.Unmarshal(got.body, &e); err != nil || got.status != http.StatusBadRequest || !strings.Contains(e.Detail, words) {
			t.Errorf("%.100s: %d %s, want %q", body, got.status, got.body, words)
		}
	}
	s.ingest("", ingestSecret, strings.Repeat(" ", 8<<20+1)).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	long := agoraNotice("A", 103, `,"contents":[`+strings.Repeat(`{"role":"user","content":"`+strings.Repeat("x", 9000)+`"},`, 300)+`{"role":"user","content":"end"}]`)
	s.ingest("", ingestSecret, long).ok(nil) // longer than any other body may be
	if n := len(s.history("A").Contents); n != 301 {
		t.Errorf("%d messages of 301", n)
	}
	s.post(v1+"/ingest/agora", `{}`, "Host", "evil.example").refused(http.StatusForbidden, "InvalidPermission")
	start(t).post(v1+"/ingest/agora", `{}`).refused(http.StatusNotFound, "TaskNotFound", "HEARDLOG_INGEST_SECRETS")
}
