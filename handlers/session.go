package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
)

// A session is a browser's sign-in: a key of its own in an HttpOnly cookie, with the scopes of the
// credential that it was made with. It ends when that key is revoked, when the settings no longer
// have a credential of that ID, and after sessionLife.
const (
	sessionCookie = "heardlog_session"
	sessionLife   = 12 * time.Hour
)

// sameSite refuses requests of pages of other sites. Browsers send the cookie with none of them
// (SameSite=Strict); this also covers other hosts of the same site.
var sameSite = http.NewCrossOriginProtection()

// ofCookie returns who signed in with the browser that sends a request. ok is false without a
// cookie.
func (c *Access) ofCookie(r *http.Request) (_ access.Client, ok bool, _ error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil || c.Sessions == nil {
		return access.Client{}, false, nil
	}
	if sameSite.Check(r) != nil {
		return access.Client{}, true, fault.New(fault.Forbidden, "a request with a session must come from the server's own pages")
	}
	session, err := c.Sessions.Check(r.Context(), "", cookie.Value)
	if err == nil {
		session.Stored, err = c.holds(r.Context(), session.Project, session.Name)
	}
	if fault.Is(err, fault.Unauthenticated) {
		err = fault.New(fault.Unauthenticated, "the session has ended; sign in again")
	}
	session.ID, session.Name = session.Name, ""
	return session, true, err
}

// holds returns nil as long as the project has the credential with the ID, and whether it is a
// stored key.
func (c *Access) holds(ctx context.Context, project, id string) (stored bool, _ error) {
	if cred, ok := c.byID[id]; ok && cred.project == project {
		return false, nil
	}
	return true, c.Keys.Valid(ctx, id)
}

// sessionAPI signs browsers in and out.
type sessionAPI struct{ access *Access }

// sessionJSON is who is signed in.
type sessionJSON struct {
	Project string         `json:"project"`
	Scopes  []access.Scope `json:"scopes"`
	Open    bool           `json:"open"` // no credentials are needed
}

func (a sessionAPI) get(w http.ResponseWriter, r *http.Request) error {
	caller := infoOf(r).caller
	out := sessionJSON{Project: caller.Project, Scopes: caller.Scopes, Open: caller.ID == ""}
	if out.Scopes == nil {
		out.Scopes = access.Scopes()
	}
	return encode(w, http.StatusOK, out)
}

// create makes a session with the credentials of the request.
func (a sessionAPI) create(w http.ResponseWriter, r *http.Request) error {
	caller := infoOf(r).caller
	if caller.ID == "" {
		return fault.New(fault.Conflict, "this server has no credentials, so there is nothing to sign in with")
	}
	if r.Header.Get("Authorization") == "" {
		return fault.New(fault.Unauthenticated, "sign in with an Authorization header")
	}
	if !caller.Until.IsZero() {
		return fault.New(fault.Forbidden, "a token of Agora's cannot sign in: use a customer ID and secret, or a key")
	}
	scopes, ends := caller.Scopes, a.access.now().Add(sessionLife)
	if scopes == nil {
		scopes = access.Scopes()
	}
	k, err := a.access.Sessions.Create(r.Context(), caller.Project, access.Key{Name: caller.ID, Scopes: scopes, ExpiresMS: ends.UnixMilli()})
	if fault.Is(err, fault.Quota) {
		return fault.New(fault.Quota, "the project has %d sessions already, which is its limit; sign out of one", access.MaxKeys)
	}
	if err != nil {
		return err
	}
	setSession(w, r, k.Secret, ends)
	return noContent(w, nil)
}

// delete ends the session of the request's cookie. It is not an error if there is none.
func (a sessionAPI) delete(w http.ResponseWriter, r *http.Request) error {
	if cookie, err := r.Cookie(sessionCookie); err == nil && a.access.Sessions != nil {
		if id := access.KeyID(cookie.Value); id != "" {
			if _, err := a.access.Sessions.Revoke(r.Context(), projectOf(r), id); err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
		}
	}
	setSession(w, r, "", time.Unix(1, 0))
	return noContent(w, nil)
}

func setSession(w http.ResponseWriter, r *http.Request, value string, ends time.Time) {
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: value, Path: "/", Expires: ends,
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	})
}
