package handlers

import (
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
)

// keyAPI manages the stored keys of a project.
type keyAPI struct {
	bodies
	access *Access
}

type keyRequest struct {
	Name      string         `json:"name"`
	Scopes    []access.Scope `json:"scopes" validate:"max=10"`
	ExpiresAt string         `json:"expires_at"`
}

// keyJSON is a stored key. Secret is set only in the answer that creates it.
type keyJSON struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Scopes    []access.Scope `json:"scopes"`
	CreatedAt timeMS         `json:"created_at"`
	ExpiresAt timeMS         `json:"expires_at,omitempty"`
	RevokedAt timeMS         `json:"revoked_at,omitempty"`
	Secret    string         `json:"secret,omitempty"`
}

func newKeyJSON(k *access.Key) keyJSON {
	return keyJSON{ID: k.ID, Name: k.Name, Scopes: k.Scopes, CreatedAt: timeMS(k.CreatedMS), ExpiresAt: timeMS(k.ExpiresMS), RevokedAt: timeMS(k.RevokedMS)}
}

// create makes a key and shows its secret, this once.
func (a keyAPI) create(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[keyRequest](a.bodies, w, r, true)
	if err != nil {
		return err
	}
	ends, err := timeOf("expires_at", in.ExpiresAt)
	if err != nil {
		return err
	}
	// The first key closes an open server, so that its holder must be able to create others.
	open, err := a.access.open(r.Context())
	if err != nil {
		return err
	}
	if open && len(in.Scopes) > 0 && !slices.Contains(in.Scopes, access.Admin) {
		return fault.At(fault.Invalid, "scopes", "must have admin in the first key: from then on the server asks every caller for a key")
	}
	k, err := a.access.Keys.Create(r.Context(), projectOf(r), access.Key{Name: in.Name, Scopes: in.Scopes, ExpiresMS: ends})
	if err != nil {
		return err
	}
	infoOf(r).target = k.ID
	w.Header().Set("Cache-Control", "no-store")
	out := newKeyJSON(&k.Key)
	out.Secret = k.Secret
	return encode(w, http.StatusCreated, out)
}

// list returns all keys of the project, revoked ones too.
func (a keyAPI) list(r *http.Request) (any, error) {
	list, err := a.access.Keys.List(r.Context(), projectOf(r))
	return map[string]any{"keys": each(list, newKeyJSON)}, err
}

// revoke ends a key.
func (a keyAPI) revoke(r *http.Request) error {
	_, err := a.access.Keys.Revoke(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	return err
}
