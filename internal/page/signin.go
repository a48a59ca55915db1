package page

import (
	"html/template"
	"net/http"
)

var signInFailed = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Sign-in failed · Heardlog</title>
<link rel="stylesheet" href="/page/frame.css"><link rel="stylesheet" href="/page/page.css"></head>
<body><main id="main"><div class="sign-in card"><h1>You are not signed in</h1>
<p role="alert">{{.}}</p><p><a href="/sign-in">Try again</a> · <a href="/">Use a key</a></p></div></main></body>
</html>
`))

// SignInFailed shows a person why the identity provider's sign-in failed.
func SignInFailed(w http.ResponseWriter, status int, why string) {
	Guard(w, policy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = signInFailed.Execute(w, why) // the browser may have left
}
