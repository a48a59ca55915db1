package handlers

import (
	"encoding/json"
	"net/http"

	"github.com/heardlog/heardlog/memory/ossa"
)

// modelRequest is an OSSA document with what it needs to be read.
type modelRequest struct {
	Document  json.RawMessage   `json:"document"`
	Part      string            `json:"part" validate:"max=256"`
	Variables map[string]string `json:"variables"`
}

// validateModel says whether an OSSA MemoryModel document is right, and what of it has which effect here. It stores nothing.
func (a contextAPI) validateModel(w http.ResponseWriter, r *http.Request) error {
	body, err := a.read(w, r)
	if err != nil {
		return err
	}
	in := modelRequest{Document: body}
	if wrapped(body) {
		in.Document = nil
		if err := a.unmarshal(body, &in, true); err != nil {
			return err
		}
	}
	report, err := ossa.Validate(ossa.Document{JSON: in.Document, Part: in.Part, Variables: in.Variables})
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, report)
}

// wrapped tells whether a body holds a document under that name, and is not one itself.
func wrapped(body []byte) bool {
	var keys map[string]json.RawMessage
	if json.Unmarshal(body, &keys) != nil {
		return false
	}
	_, version := keys["apiVersion"]
	_, kind := keys["kind"]
	_, document := keys["document"]
	return document && !version && !kind
}
