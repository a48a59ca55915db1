package compat_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestIngestSurvivesKill checks that an acknowledged notification is stored after the process was
// killed, and is recognized when it is sent again.
func TestIngestSurvivesKill(t *testing.T) {
	t.Parallel()
	const secret = "customer key"
	settings := []string{"HEARDLOG_INGEST_SECRETS=default=" + secret}
	s := start(t, settings...)
	stopped := time.Now().Unix()
	notify := func(s *server, id, kind, more string) string {
		body := fmt.Sprintf(`{"sid":"S","noticeId":"%s:%s","productId":17,"eventType":%s,"notifyMs":%d,"payload":{"agent_id":"%s","name":"desk","channel":"room","start_ts":%d%s}}`,
			id, kind, kind, stopped*1000, id, stopped-60, more)
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		var out struct{ Msg string }
		s.call(t, http.StatusOK, http.MethodPost, "/v1/ingest/agora", body, &out, "Agora-Signature-V2", hex.EncodeToString(mac.Sum(nil)))
		return out.Msg
	}
	history := `,"contents":[{"role":"user","content":"Hello?"},{"role":"assistant","content":"Good day."}]`
	for round := range 3 {
		id := fmt.Sprint("A", round)
		notify(s, id, "103", history)
		notify(s, id, "102", fmt.Sprintf(`,"stop_ts":%d,"status":"STOPPED","message":"OK"`, stopped))
		s.kill()
		s = start(t, append(settings, "HEARDLOG_STORE=sqlite:"+s.store)...)
		if status := s.statusOf(t, id); status != "STOPPED" {
			t.Errorf("%s is %s after the kill", id, status)
		}
		if got := s.historyOf(t, id); len(got) != 2 || got[1].Content != "Good day." {
			t.Errorf("its history after the kill: %+v", got)
		}
		if msg := notify(s, id, "103", history); msg != "success, known already" {
			t.Errorf("the same notification after the kill: %q", msg)
		}
	}
}
