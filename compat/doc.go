// Package compat holds the black-box tests of Heardlog: they build the binaries, start them as
// processes of their own, and drive them as the world does, with the official OpenAI client, with a
// client that sends what Agora's clients send, with curl, and with signals.
//
// It is a module of its own and imports nothing of the server, so that neither side's dependencies
// reach the other. Every answer is checked against openapi.yaml. The tests use loopback addresses
// only.
package compat
