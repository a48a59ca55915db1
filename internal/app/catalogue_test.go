package app_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/heardlog/heardlog/webhook"
)

// TestCatalogueAsDescribed: the example of each event type is one that openapi.yaml allows, too.
func TestCatalogueAsDescribed(t *testing.T) {
	t.Parallel()
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := webhook.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://receiver/", bytes.NewReader(e.Example))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for name, value := range map[string]string{
			webhook.HeaderID: "x:1:1", webhook.HeaderTimestamp: "1780000000", webhook.HeaderAttempt: "1", webhook.HeaderSignature: "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
		} {
			req.Header.Set(name, value)
		}
		if err := sp.Event(req, e.Example); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
	}
}
