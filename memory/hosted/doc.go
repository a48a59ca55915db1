// Package hosted reads calls that ran on hosted voice platforms from what the platforms say of them
// once they are over: the body of a webhook, an entry of a list of calls, or a report in a file. A
// Call is the form that all of them are read into; Read makes it.
//
// Readers are tolerant: a field of another type than the platform documents is left out, and Call
// counts it. They make nothing up: a Call has only what its platform says, and each text that the
// caller heard has the method by which the platform knows it.
package hosted
