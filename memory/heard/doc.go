// Package heard finds which part of a generated answer a caller heard. Align locates a text that a
// platform reports as heard; a Voice estimates the part from the playing time. Both return a prefix
// of the generated text. Normalize returns the form in which texts are compared.
//
// The package is pure: it stores nothing and knows neither agents nor messages.
package heard
