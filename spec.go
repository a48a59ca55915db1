// Package heardlog carries the API's description, so that every part of the server reads the same
// one.
package heardlog

import _ "embed"

// Spec is openapi.yaml.
//
//go:embed openapi.yaml
var Spec []byte
