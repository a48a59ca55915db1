package handlers

import (
	"encoding/json"
	"net/http"

	"github.com/heardlog/heardlog/memory/ossa"
)

// modelAPI serves memory models of the Open Standard for Software Agents (OSSA).
type modelAPI struct {
	bodies
}

// modelRequest is an OSSA document and what is needed to read it.
type modelRequest struct {
	Document  json.RawMessage   `json:"document"`
	Part      string            `json:"part" validate:"max=256"`
	Variables map[string]string `json:"variables"`
}

// checkModel checks an OSSA MemoryModel document and reports which of its settings have an
// effect here. It stores nothing.
func (a modelAPI) checkModel(w http.ResponseWriter, r *http.Request) error {
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

// wrapped reports whether a body holds a document as a member, instead of being one.
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
