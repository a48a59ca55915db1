// Package heardlog carries the API's description and the documents, so that every part of the
// server reads the same ones.
package heardlog

import "embed"

// Spec is openapi.yaml.
//
//go:embed openapi.yaml
var Spec []byte

// Docs has the documents, in the folder docs.
//
//go:embed docs/*.md docs/picture.svg docs/pictures docs/start docs/guides docs/reference docs/internals
var Docs embed.FS
