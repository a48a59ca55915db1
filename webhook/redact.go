package webhook

import (
	"github.com/heardlog/heardlog/internal/secret"
)

// hideSecrets removes the endpoint's secret values from the receiver's answer. A receiver that
// echoes the request, as some do when they fail, would otherwise put them into the log of attempts.
func (a *Attempt) hideSecrets(e *Endpoint) {
	if len(a.Response) == 0 && len(a.Detail.Headers) == 0 && a.Error == "" {
		return
	}
	hidden := e.hidden()
	if a.Truncated {
		a.Response = a.Response[:len(a.Response)-hidden.Begun(a.Response)]
	}
	a.Response = hidden.Hide(a.Response)
	a.Error = string(hidden.Hide([]byte(a.Error))) // it may quote the target of a redirect
	for i := range a.Detail.Headers {
		h := &a.Detail.Headers[i]
		h.Value = string(hidden.Hide([]byte(h.Value)))
	}
	if len(a.Response) > MaxResponse { // a short value has made room for the mask in its place
		a.Response, a.Truncated = a.Response[:MaxResponse], true
	}
}

// hidden returns the endpoint's secret values.
func (e *Endpoint) hidden() secret.Set {
	values := secret.InURL(e.URL)
	for _, s := range e.Secrets {
		values = append(values, s.Value.Reveal())
	}
	for _, h := range e.Headers {
		values = append(values, h.Value.Reveal())
	}
	values = append(values, e.Auth.Bearer.Reveal(), e.Auth.Password.Reveal(), e.ClientCert.Key.Reveal())
	if e.Auth.Password != "" {
		values = append(values, e.Auth.User+":"+e.Auth.Password.Reveal())
	}
	return secret.NewSet(values...)
}
