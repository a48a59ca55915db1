package handlers

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/oidc"
)

// A session is a browser's sign-in: a key of its own in an HttpOnly cookie, with the scopes of the
// credential that it was made with, or those that a sign-in with the identity provider gave it. It
// ends when that credential does, when it is not used for SessionIdle, and after sessionLife.
const (
	// SessionIdle is the idle limit of Access.Sessions.
	SessionIdle = time.Hour
	sessionLife = 12 * time.Hour
)

// cookieName returns the name of a cookie. Behind TLS, no other host of the same site can set it.
func (c *Access) cookieName(r *http.Request, name string) string {
	if c.secure(r) {
		return "__Host-" + name
	}
	return name
}

func (c *Access) sessionCookie(r *http.Request) string {
	return c.cookieName(r, "heardlog_session")
}

// secure reports whether a browser reached the server by https. A proxy in front may not say so.
func (c *Access) secure(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" || strings.EqualFold(c.PublicURL, "https://"+r.Host)
}

// sameSite refuses requests of pages of other sites. Browsers send the cookie with none of them
// (SameSite=Strict); this also covers other hosts of the same site.
var sameSite = http.NewCrossOriginProtection()

// ofCookie returns who signed in with the browser that sends a request. ok is false without a
// cookie.
func (c *Access) ofCookie(r *http.Request) (_ access.Client, ok bool, _ error) {
	cookie, err := r.Cookie(c.sessionCookie(r))
	if err != nil || c.Sessions == nil {
		return access.Client{}, false, nil
	}
	if sameSite.Check(r) != nil {
		return access.Client{}, true, fault.New(fault.Forbidden, "a request with a session must come from the server's own pages")
	}
	session, err := c.Sessions.Check(r.Context(), "", cookie.Value)
	id := session.Name
	switch {
	case err != nil:
	case session.SignIn != nil:
		id, session.Stored, session.Person = oidc.Prefix+session.SignIn.Subject, false, session.SignIn.Person
		if !c.OIDC.Holds(*session.SignIn) {
			err = access.ErrWrong()
		}
	default:
		session.Stored, err = c.holds(r.Context(), session.Project, id)
	}
	if fault.Is(err, fault.Unauthenticated) {
		err = fault.New(fault.Unauthenticated, "the session has ended; sign in again")
	}
	session.Session, session.ID, session.Name = session.ID, id, ""
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
	Person  string         `json:"person,omitempty"`
}

func (a sessionAPI) get(w http.ResponseWriter, r *http.Request) error {
	caller := infoOf(r).caller
	out := sessionJSON{Project: caller.Project, Scopes: caller.Scopes, Open: caller.ID == "", Person: caller.Person}
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
		return fault.New(fault.Forbidden, "a token cannot sign in: use an ID and its secret, or a key")
	}
	scopes := caller.Scopes
	if scopes == nil {
		scopes = access.Scopes()
	}
	if err := a.access.begin(w, r, caller.Project, access.Key{Name: caller.ID, Scopes: scopes}); err != nil {
		return err
	}
	return noContent(w, nil)
}

// begin makes a session of a project and gives it to the browser.
func (c *Access) begin(w http.ResponseWriter, r *http.Request, project string, session access.Key) error {
	ends := c.now().Add(sessionLife)
	session.ExpiresMS = ends.UnixMilli()
	k, err := c.Sessions.Create(r.Context(), project, session)
	if fault.Is(err, fault.Quota) {
		return fault.New(fault.Quota, "the project has %d sessions already, which is its limit; sign out of one", access.MaxKeys)
	}
	if err != nil {
		return err
	}
	c.setCookie(w, r, c.sessionCookie(r), k.Secret, ends, http.SameSiteStrictMode)
	return nil
}

// signedOutJSON is where a browser goes on to.
type signedOutJSON struct {
	Location string `json:"location"`
}

// delete ends the session of the request's cookie. It is not an error if there is none. If the
// identity provider has a session, too, the answer has the address that ends it.
func (a sessionAPI) delete(w http.ResponseWriter, r *http.Request) error {
	signIn := infoOf(r).caller.SignIn
	if err := a.access.endSession(r); err != nil {
		return err
	}
	a.access.setCookie(w, r, a.access.sessionCookie(r), "", time.Unix(1, 0), http.SameSiteStrictMode)
	if signIn != nil {
		if address := a.access.OIDC.SignOut(r.Context(), *signIn, a.access.PublicURL+"/"); address != "" {
			return encode(w, http.StatusOK, signedOutJSON{address})
		}
	}
	return noContent(w, nil)
}

// endSession ends the session of a request's cookie, if it has one.
func (c *Access) endSession(r *http.Request) error {
	cookie, err := r.Cookie(c.sessionCookie(r))
	if err != nil || c.Sessions == nil {
		return nil
	}
	session, err := c.Sessions.Check(r.Context(), "", cookie.Value)
	if err == nil {
		_, err = c.Sessions.Revoke(r.Context(), session.Project, session.ID)
	}
	if fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

func (c *Access) setCookie(w http.ResponseWriter, r *http.Request, name, value string, ends time.Time, site http.SameSite) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", Expires: ends, HttpOnly: true, SameSite: site, Secure: c.secure(r)})
}
