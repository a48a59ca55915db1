package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestIngestOmits: the readable part of a notification is filed. The answer, the log and a metric
// report what was left out.
func TestIngestOmits(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_RETENTION=0", "HEARDLOG_INGEST_SECRETS=default="+ingestSecret)
	user := func(fields string) string {
		return `,"contents":[{"role":"user","content":"kept"},{"role":"assistant",` + fields + `}]`
	}
	long := strings.Repeat("é", 200<<10)
	omitted := 0
	for i, tt := range []struct {
		kind   int
		fields string
		says   string // what the answer names; "" = nothing
		last   string // the last message of the history
	}{
		{101, `,"labels":{"a":"x","b":7,"c":null,"d":{}}`, "payload.labels.b: is not a string; payload.labels.d: is not a string", ""},
		{101, `,"labels":["a"]`, "payload.labels: is not an object", ""},
		{101, `,"labels":{"k":"` + strings.Repeat("x", 20_000) + `","l":"y"}`, "payload.labels.k: is beyond", ""},
		{101, `,"name":7,"channel":{}`, "payload.name: is not a string; payload.channel: is not a string", ""},
		{101, `,"start_ts":12`, "payload.start_ts: 12 is not a time", ""},
		{101, `,"stop_ts":-1`, "payload.stop_ts: -1 is not a time", ""},
		{103, user(`"content":"said","metadata":"m"`), "payload.contents[1].metadata: is not an object", "said"},
		{103, user(`"content":"said","metadata":null`), "", "said"},
		{103, user(`"content":"said","metadata":{"k":"` + strings.Repeat("x", 20_000) + `"}`), "payload.contents[1].metadata: is 20003 bytes long", "said"},
		{103, user(`"content":"said","timestamp":12`), "payload.contents[1].timestamp: 12", "said"},
		{103, user(`"content":7`), "payload.contents[1].content: is not text; it is kept as JSON", "7"},
		{103, user(`"content":{"text": "x"}`), "it is kept as JSON", `{"text":"x"}`},
		{103, user(`"content":"` + long + `"`), "payload.contents[1].content: is 409600 bytes long; the first 262144 are kept", long[:256<<10]},
		{103, user(`"content":[{"type":"text","text":"` + long + `"}]`), "its texts are kept without their parts", long[:256<<10]},
		{103, user(`"content":"cut","metadata":{"interrupted":true,"original":"` + long + `"}`), "metadata.original: is 409600 bytes long", "cut"},
		{103, `,"contents":[{"role":7},7,null,{"role":"user","content":"kept"}]`, "payload.contents[1]: cannot be read; payload.contents[2]: cannot be read; payload.contents[0].role: is not a string", "kept"},
		{103, `,"contents":{"role":"user"}`, "payload.contents: is not a list", ""},
		{103, `,"contents":[` + strings.Repeat(`{"role":"user","content":"x"},`, 10_000) + `{"role":"user","content":"end"}]`, "has 10001 entries; the last 10000 are kept", "end"},
		{112, `,"turns":[{"turn_id":1,"start":{"start_at":5}},{"turn_id":2,"start":"x"}]`, "payload.turns[1]: cannot be read; payload.turns[0].start.start_at: 5", ""},
		{110, `,"errors":[{"module":"llm","turn_id":1,"message":"` + strings.Repeat("m", 2000) + `"}]`, "payload.errors[0].message: is 2000 bytes long; the first 1024 are kept", ""},
		{103, `,"contents":[` + strings.Repeat(`0,`, 99) + `{"role":"user","content":"end"}]`, "payload.contents[9]: cannot be read; and 89 more", "end"},
	} {
		id := fmt.Sprint("A", i)
		var out struct{ Msg string }
		s.ingest("", ingestSecret, agoraNotice(id, tt.kind, tt.fields)).ok(&out)
		switch {
		case tt.says == "" && out.Msg != "success":
			t.Errorf("%.100s: %s", tt.fields, out.Msg)
		case tt.says != "" && (!strings.HasPrefix(out.Msg, "success; left out: ") || !strings.Contains(out.Msg, tt.says)):
			t.Errorf("%.100s: %.300s, want %q", tt.fields, out.Msg, tt.says)
		case tt.says != "":
			omitted++
		}
		got := s.history(id).Contents
		if last := ""; len(got) > 0 {
			if last = got[len(got)-1].Content; last != tt.last {
				t.Errorf("%.100s: %.100s", tt.fields, last)
			}
			if cut := len(tt.last) == 256<<10; cut != (got[len(got)-1].Metadata["heardlog_cut"] == true) {
				t.Errorf("%.100s: %v", tt.fields, got[len(got)-1].Metadata)
			}
		} else if tt.last != "" {
			t.Errorf("%.100s: nothing was filed", tt.fields)
		}
		s.ingest("", ingestSecret, agoraNotice(id, tt.kind, tt.fields)).ok(&out)
		if out.Msg != "success, known already" {
			t.Errorf("%.100s again: %.300s", tt.fields, out.Msg)
		}
	}
	if n := strings.Count(s.log.String(), "left out of the notification"); n != omitted {
		t.Errorf("%d lines of the log tell of it, want %d", n, omitted)
	}
	if page := string(s.get("/metrics").ok(nil).body); strings.Contains(page, "heardlog_ingest_left_out_total 0\n") || !strings.Contains(page, "heardlog_ingest_left_out_total ") {
		t.Error("the metric counts nothing")
	}
}

// TestIngestForgotten: a repeated notification does not restore what retention has erased, or would
// have.
func TestIngestForgotten(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_RETENTION=24h", "HEARDLOG_INGEST_SECRETS=default="+ingestSecret)
	ago := func(d time.Duration) int64 { return time.Now().Add(-d).Unix() }
	for i, tt := range []struct {
		head, fields string
		filed        bool
	}{
		{"", fmt.Sprintf(`"start_ts":%d`, ago(97*time.Hour)), false},
		{"", fmt.Sprintf(`"start_ts":%d`, ago(95*time.Hour)), true},
		{"", fmt.Sprintf(`"start_ts":%d,"stop_ts":%d`, ago(30*time.Hour), ago(25*time.Hour)), false},
		{"", fmt.Sprintf(`"start_ts":%d,"stop_ts":%d`, ago(97*time.Hour), ago(23*time.Hour)), true},
		{fmt.Sprintf(`"notifyMs":%d,`, 1000*ago(97*time.Hour)), `"x":1`, false},
		{fmt.Sprintf(`"notifyMs":%d,`, 1000*ago(time.Hour)), `"x":1`, true},
		{"", `"x":1`, true},
	} {
		id := fmt.Sprint("F", i)
		var out struct{ Msg string }
		s.ingest("", ingestSecret, fmt.Sprintf(`{%s"noticeId":"n","productId":17,"eventType":103,"payload":{"agent_id":%q,%s,"contents":[{"role":"user","content":"x"}]}}`, tt.head, id, tt.fields)).ok(&out)
		if got := s.get(agent(id)).status == 200; got != tt.filed {
			t.Errorf("%s %s: filed %t", tt.head, tt.fields, got)
		}
		if want := map[bool]string{true: "success", false: "ignored: its agent is past the retention"}[tt.filed]; out.Msg != want {
			t.Errorf("%s %s: %s", tt.head, tt.fields, out.Msg)
		}
	}
}
