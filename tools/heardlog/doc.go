// Package heardlog is empty. A test puts a generated Go client of the API here, to compile it with
// the module that such clients import.
package heardlog

import _ "github.com/oapi-codegen/runtime" // for the generated client
