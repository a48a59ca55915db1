package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// oidcRoles are the names of roles. Package oidc has what each may do.
var oidcRoles = []string{"read", "write", "admin"}

// parseOIDCRoles reads value=project:role entries. A value may contain "=".
func parseOIDCRoles(v string) ([]OIDCRole, error) {
	const form = "value=project:role"
	entries, err := readEntries(v, form)
	if err != nil {
		return nil, err
	}
	var out []OIDCRole
	for _, e := range entries {
		at := strings.LastIndexByte(e.text, '=')
		project, role, ok := strings.Cut(e.text[at+1:], ":")
		switch {
		case at < 1 || !ok:
			return nil, fmt.Errorf("entry %d must be %s, not %q", e.number, form, e.text)
		case !ValidProject(project):
			return nil, fmt.Errorf("entry %d: the project must have 1 to 128 letters, digits, dots, dashes and underscores", e.number)
		case !slices.Contains(oidcRoles, role):
			return nil, fmt.Errorf("entry %d: the role must be one of %s, not %q", e.number, strings.Join(oidcRoles, ", "), role)
		case len(out) == maxCredentials:
			return nil, fmt.Errorf("must have at most %d entries", maxCredentials)
		}
		out = append(out, OIDCRole{strings.TrimSpace(e.text[:at]), project, role})
	}
	if len(out) == 0 {
		return nil, errors.New("has no entry, so that nobody could sign in")
	}
	return out, nil
}

// checkIssuer requires https, except for a provider on this machine: its keys decide who may come
// in.
func checkIssuer(v string) error {
	if err := checkURL(v); err != nil {
		return err
	}
	u, err := url.Parse(v)
	switch {
	case err != nil || strings.Contains(v, "?"):
		return errors.New("must not contain a query")
	case u.Scheme != "https" && !isLoopback(u.Hostname()+":0"):
		return errors.New("must begin with https, unless the provider is on this machine")
	}
	return nil
}

// checkOIDC finds mistakes that concern more than one setting.
func (c *Config) checkOIDC(m mistakes) {
	o := c.OIDC
	if o.Issuer == "" {
		for name, set := range map[string]bool{
			"HEARDLOG_OIDC_ROLES": len(o.Roles) > 0, "HEARDLOG_OIDC_CLIENT_ID": o.ClientID != "", "HEARDLOG_OIDC_AUDIENCE": len(o.Audiences) > 0,
		} {
			if set {
				m.set(name, "requires HEARDLOG_OIDC_ISSUER, the identity provider")
			}
		}
		return
	}
	if len(o.Roles) == 0 {
		m.set("HEARDLOG_OIDC_ROLES", "is required with HEARDLOG_OIDC_ISSUER: without a role nobody may do anything")
	}
	if o.ClientSecret != "" && o.ClientID == "" {
		m.set("HEARDLOG_OIDC_CLIENT_SECRET", "requires HEARDLOG_OIDC_CLIENT_ID")
	}
	if !slices.Contains(o.Scopes, "openid") {
		m.set("HEARDLOG_OIDC_SCOPES", "must contain openid")
	}
	if c.PublicURL == "" && !c.Loopback {
		if o.ClientID != "" {
			m.set("HEARDLOG_OIDC_CLIENT_ID", "requires HEARDLOG_PUBLIC_URL, where the identity provider sends browsers back to")
		} else if len(o.Audiences) == 0 {
			m.set("HEARDLOG_OIDC_ISSUER", "requires HEARDLOG_PUBLIC_URL, or HEARDLOG_OIDC_AUDIENCE: else tokens for any other server would do")
		}
	}
}

// Closed reports whether the settings have credentials of some kind, so that calls need some.
func (c Config) Closed() bool {
	return len(c.Credentials)+len(c.Certificates) > 0 || c.OIDC.Issuer != ""
}
