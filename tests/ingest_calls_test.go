package tests

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // Twilio signs with it
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// filedCall is the answer to the report of a call.
type filedCall struct {
	Status, Reason string
	AgentID        string `json:"agent_id"`
	LeftOut        string `json:"left_out"`
}

// payload returns a payload of package hosted's tests.
func payload(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile("../memory/hosted/testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func hmacHex(key string, parts ...string) string {
	mac := hmac.New(sha256.New, []byte(key))
	for _, p := range parts {
		mac.Write([]byte(p))
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// TestIngestCall files calls of each platform with credentials and reads them like any other.
func TestIngestCall(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_RETENTION=0")
	for name, id := range map[string]string{
		"vapi.call": "vapi-call-1", "retell.call": "call_retell_1", "elevenlabs.hook": "conv_1", "livekit.report": "AJ_1", "twilio.call": "CA" + strings.Repeat("1", 32),
		"twilio.relay": "CA2", "openai.chat": "chatcmpl-1", "openai.realtime": "rtc_1", "pipecat.session": "p-1",
	} {
		platform, _, _ := strings.Cut(name, ".")
		for _, want := range []string{"filed", "known"} {
			var out filedCall
			s.post(v1+"/ingest/"+platform, payload(t, name)).ok(&out)
			if out.Status != want || out.AgentID != id || out.LeftOut != "" {
				t.Errorf("%s: %+v, want %s", name, out, want)
			}
		}
	}
	s = s.again() // it is on disk
	type view struct {
		Status, Reason, Platform, Name string
		UserID                         string `json:"user_id"`
		StartedAt                      string `json:"started_at"`
		Keys                           []string
		Hosted                         struct {
			Platform, CallID string
			EndReason        string   `json:"end_reason"`
			Recording        string   `json:"recording_url"`
			Cost             *float64 `json:"cost_usd"`
		}
	}
	var a view
	s.get(agent("vapi-call-1", "")).ok(&a)
	if a.Status != "STOPPED" || a.Reason != "customer-ended-call" || a.Platform != "vapi" || a.UserID != "+4930123456" || a.StartedAt != "2026-05-28T20:26:40.000Z" ||
		a.Hosted.Recording != "https://storage.vapi.ai/1.wav" || a.Hosted.Cost == nil || *a.Hosted.Cost != 0.1234 || fmt.Sprint(a.Keys) != "[vapi.call:vapi-call-1]" {
		t.Errorf("%+v", a)
	}
	shown := func(id string) string {
		var list []string
		for _, m := range s.history(id).Contents {
			list = append(list, fmt.Sprint(m.Role, " ", m.TurnID, " ", m.Content, " ", m.Metadata["interrupted"], " ", m.Metadata["original"]))
		}
		return strings.Join(list, "\n")
	}
	if got, want := shown("conv_1"), "assistant 0 Hello! <nil> <nil>\nuser 1 When is my train? <nil> <nil>\nassistant 1 It leaves at true It leaves at nine from platform two.\nuser 2 Thank you. <nil> <nil>"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got, want := shown("AJ_1"), "assistant 0 Hello! <nil> <nil>\nuser 1 When is my train? <nil> <nil>\nassistant 1 It leaves at true It leaves at"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	var table struct {
		Turns []struct {
			Metrics struct {
				E2E int64 `json:"e2e_latency_ms"`
			}
		}
	}
	s.get(agent("vapi-call-1", "/turns")).ok(&table)
	if len(table.Turns) != 2 || table.Turns[1].Metrics.E2E != 850 {
		t.Errorf("%+v", table)
	}
	var recalled struct {
		Hits []struct{ Content string }
	}
	s.post(v1+"/recall", `{"user_id":"+4930123456","query":"when does the train leave?"}`).ok(&recalled)
	if len(recalled.Hits) == 0 {
		t.Error("the calls are not recalled")
	}
	if report := string(s.get(v1 + "/reports?group_by=platform&since=2026-05-01T00:00:00Z&interval=day").ok(nil).body); !strings.Contains(report, `"retell"`) || !strings.Contains(report, `"vapi"`) {
		t.Errorf("the calls are not in reports: %s", report)
	}
	// The caller's calls are found by the number.
	if got := s.finds("user_id=%2B4930123456"); len(got) != 6 {
		t.Errorf("%d calls of the caller: %v", len(got), got)
	}
	s.post(agent("vapi-call-1", "/messages"), user("x")).refused(http.StatusGone, "TaskNotFound", "ran at vapi")
	s.post(v1+"/ingest/vapi", `{"x":"`+strings.Repeat("x", 9<<20)+`"}`).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	limited := start(t, "HEARDLOG_RATE_LIMIT=1")
	for limited.post(v1+"/ingest/vapi", `{}`).status != http.StatusTooManyRequests {
	}
	s.post(v1+"/ingest/nobody", `{}`).refused(http.StatusNotFound, "TaskNotFound", "known are elevenlabs, livekit")
	s.post(v1+"/ingest/vapi", `{"status":"ended"}`).refused(http.StatusBadRequest, "MissingRequiredField", "ID of the call")
	s.post(v1+"/ingest/vapi", `[`).refused(http.StatusBadRequest, "InvalidRequestBody", "JSON")
}

// TestIngestCallMerges: a second webhook of a call adds what it has more, in any order.
func TestIngestCallMerges(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_RETENTION=0")
	bodies := []string{
		`{"event":"call_ended","call":{"call_id":"%s","call_status":"ended","start_timestamp":1780000000000,"end_timestamp":1780000060000,"from_number":"+4930123456","transcript_object":[{"role":"user","content":"Hello?","words":[]}]}}`,
		`{"event":"call_analyzed","call":{"call_id":"%s","call_status":"ended","start_timestamp":1780000000000,"end_timestamp":1780000060000,"recording_url":"https://r.example/1.wav","call_cost":{"combined_cost":10},
			"transcript_object":[{"role":"user","content":"Hello?","words":[]},{"role":"agent","content":"Good day.","words":[]}]}}`,
	}
	for id, order := range map[string][]int{"a": {0, 1, 0}, "b": {1, 0, 1}} {
		for _, i := range order {
			s.post(v1+"/ingest/retell", fmt.Sprintf(bodies[i], id)).ok(nil)
		}
		var a struct {
			UserID string `json:"user_id"`
			Hosted struct {
				Recording string `json:"recording_url"`
			}
		}
		s.get(agent(id, "")).ok(&a)
		h := s.history(id).Contents
		if a.UserID != "+4930123456" || a.Hosted.Recording == "" || len(h) != 2 || h[1].Content != "Good day." {
			t.Errorf("%s: %+v %+v", id, a, h)
		}
	}
}

// TestIngestCallOfOurs: a call that ran through the server keeps its own record.
func TestIngestCallOfOurs(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_RETENTION=0")
	id := s.join("own", map[string]any{"heardlog": map[string]any{"keys": []string{"vapi.call:vapi-call-1"}}})
	for range 2 {
		var out filedCall
		s.post(v1+"/ingest/vapi", payload(t, "vapi.call")).ok(&out)
		if out.Status != "ignored" || !strings.Contains(out.Reason, "ran through this server as agent "+id) {
			t.Errorf("%+v", out)
		}
		s.post(agent(id, "/leave"), "")
	}
	// A caller who was erased does not come back with an old call.
	s.post(v1+"/ingest/retell", payload(t, "retell.call")).ok(nil)
	s.do(http.MethodDelete, v1+"/users/%2B4930123456", "").ok(nil)
	var out filedCall
	s.post(v1+"/ingest/retell", payload(t, "retell.call")).ok(&out)
	if out.Status != "ignored" || !strings.Contains(out.Reason, "erased") {
		t.Errorf("%+v", out)
	}
}

// TestIngestCallSignatures: webhooks are signed as their platforms do, with secrets of their own.
func TestIngestCallSignatures(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_RETENTION=0", "HEARDLOG_CREDENTIALS=p1=id1:s1,p2=id2:s2", "HEARDLOG_PUBLIC_URL=https://heardlog.example",
		"HEARDLOG_INGEST_SECRETS=p1/vapi=old one,p1/vapi=key,p1/retell=key,p1/elevenlabs=key,p1/twilio=key,p2/vapi=other,p1=agora")
	vapi, retell, eleven := payload(t, "vapi.report"), payload(t, "retell.call"), payload(t, "elevenlabs.hook")
	now := time.Now()
	ms, sec := strconv.FormatInt(now.UnixMilli(), 10), strconv.FormatInt(now.Unix(), 10)
	oldMS, oldSec := strconv.FormatInt(now.Add(-6*time.Minute).UnixMilli(), 10), strconv.FormatInt(now.Add(-31*time.Minute).Unix(), 10)
	form := "CallSid=CA9&CallStatus=completed&From=%2B4930123456&Timestamp=Thu%2C+28+May+2026+20%3A27%3A40+%2B0000&CallDuration=60&Direction=inbound"
	twilio := func(key, at string) string {
		mac := hmac.New(sha1.New, []byte(key))
		mac.Write([]byte(at + "CallDuration60CallSidCA9CallStatuscompletedDirectioninboundFrom+4930123456TimestampThu, 28 May 2026 20:27:40 +0000"))
		return base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	const forms = "application/x-www-form-urlencoded"
	for what, c := range map[string]struct {
		path, body string
		headers    []string
		code       int
	}{
		"vapi secret":            {"vapi?project=p1", vapi, []string{"X-Vapi-Secret", "key"}, 200},
		"vapi old secret":        {"vapi?project=p1", vapi, []string{"X-Vapi-Secret", "old one"}, 200},
		"vapi hmac":              {"vapi?project=p1", vapi, []string{"X-Vapi-Signature", hmacHex("key", vapi)}, 200},
		"vapi hmac with time":    {"vapi?project=p1", vapi, []string{"X-Signature", hmacHex("key", sec, ".", vapi), "X-Timestamp", sec}, 200},
		"vapi hmac with ms":      {"vapi?project=p1", vapi, []string{"X-Signature", "sha256=" + hmacHex("key", ms, ".", vapi), "X-Timestamp", ms}, 200},
		"vapi old hmac":          {"vapi?project=p1", vapi, []string{"X-Signature", hmacHex("key", oldMS, ".", vapi), "X-Timestamp", oldMS}, 401},
		"vapi other project":     {"vapi?project=p1", vapi, []string{"X-Vapi-Secret", "other"}, 401},
		"vapi agora's secret":    {"vapi?project=p1", vapi, []string{"X-Vapi-Secret", "agora"}, 401},
		"vapi unknown project":   {"vapi?project=nobody", vapi, []string{"X-Vapi-Secret", "key"}, 401},
		"vapi project in a path": {"vapi?project=p1/vapi", vapi, []string{"X-Vapi-Secret", "key"}, 401},
		"vapi nothing":           {"vapi?project=p1", vapi, []string{"Authorization", ""}, 401},
		"vapi credentials":       {"vapi", vapi, []string{"Authorization", "Bearer s2"}, 200},
		"vapi wrong project":     {"vapi?project=p1", vapi, []string{"Authorization", "Bearer s2"}, 403},
		"retell":                 {"retell", retell, []string{"X-Retell-Signature", "v=" + ms + ",d=" + hmacHex("key", retell, ms)}, 200},
		"retell old":             {"retell", retell, []string{"X-Retell-Signature", "v=" + oldMS + ",d=" + hmacHex("key", retell, oldMS)}, 401},
		"retell wrong":           {"retell", retell, []string{"X-Retell-Signature", "v=" + ms + ",d=" + hmacHex("kez", retell, ms)}, 401},
		"elevenlabs":             {"elevenlabs", eleven, []string{"ElevenLabs-Signature", "t=" + sec + ",v0=" + hmacHex("key", sec, ".", eleven)}, 200},
		"elevenlabs old":         {"elevenlabs", eleven, []string{"ElevenLabs-Signature", "t=" + oldSec + ",v0=" + hmacHex("key", oldSec, ".", eleven)}, 401},
		"elevenlabs half":        {"elevenlabs", eleven, []string{"ElevenLabs-Signature", "v0="}, 401},
		"twilio":                 {"twilio?project=p1", form, []string{"X-Twilio-Signature", twilio("key", "https://heardlog.example/v1/ingest/twilio?project=p1"), "Content-Type", forms}, 204},
		"twilio wrong url":       {"twilio?project=p1", form, []string{"X-Twilio-Signature", twilio("key", "https://other.example/v1/ingest/twilio?project=p1"), "Content-Type", forms}, 401},
		"agora unaffected":       {"agora?project=p1/vapi", vapi, []string{"Agora-Signature-V2", hmacHex("key", vapi)}, 401},
	} {
		if got := s.post(v1+"/ingest/"+c.path, c.body, c.headers...).status; got != c.code {
			t.Errorf("%s: %d, want %d", what, got, c.code)
		}
	}
	var a struct {
		UserID string `json:"user_id"`
	}
	s.get(agent("CA9", ""), "Authorization", "Bearer s1").ok(&a)
	if a.UserID != "+4930123456" {
		t.Errorf("%+v", a)
	}
	if page := string(s.get("/metrics").ok(nil).body); !strings.Contains(page, `heardlog_ingest_total{result="filed",type="vapi"} 2`) {
		t.Error("the metrics do not count the calls")
	}
}
