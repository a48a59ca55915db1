// Package event holds the types of webhook events: their numbers and names, each in one place.
//
// Numbers below 10000 are those of Agora's notifications; the others are events that Agora does not
// have. Numbers and names are part of the API: they are added to and never changed.
package event

import "strconv"

// The numbers of the event types.
const (
	Joined           = 101
	Left             = 102
	History          = 103
	Expiring         = 104
	Error            = 110
	Metrics          = 111
	Turns            = 112
	Interrupted      = 10001
	Message          = 10002
	Scored           = 10003 // a score of a call or a turn was set
	DeliveryDead     = 10011 // a delivery was given up; sent to the project's other endpoints
	EndpointDisabled = 10012 // an endpoint was disabled; sent to the project's other endpoints
	Test             = 10021 // requested by hand; sent to one endpoint, whatever its filter
	FactAdded        = 10101 // a fact about a caller became active
	FactSuperseded   = 10102 // another fact took its place
	FactWithdrawn    = 10103 // it was not heard after all, or it was undone
	FactExpired      = 10104 // its time is over
	UserErased       = 10111 // a caller was erased
	KVProvider       = 10121 // something happened to the server that keeps keys and values
)

// Type is an event type.
type Type struct {
	Number  int
	Name    string // in filters, such as agent.left
	Default bool   // sent to endpoints without a filter
}

// types is never written to.
var types = []Type{
	{Joined, "agent.joined", true},
	{Left, "agent.left", true},
	{History, "agent.history", true},
	{Expiring, "agent.expiring", false},
	{Error, "agent.error", true},
	{Metrics, "agent.metrics", false},
	{Turns, "agent.turns", true},
	{Interrupted, "agent.interrupted", false},
	{Message, "agent.message", false},
	{Scored, "agent.scored", false},
	{DeliveryDead, "delivery.dead", false},
	{EndpointDisabled, "endpoint.disabled", false},
	{Test, "webhook.test", false},
	{FactAdded, "memory.fact.added", false},
	{FactSuperseded, "memory.fact.superseded", false},
	{FactWithdrawn, "memory.fact.withdrawn", false},
	{FactExpired, "memory.fact.expired", false},
	{UserErased, "user.erased", false},
	{KVProvider, "kv.provider", false},
}

// Types returns every type, by number.
func Types() []Type { return append([]Type(nil), types...) }

// Of returns the type with a number. It reports false if there is none.
func Of(number int) (Type, bool) {
	for _, t := range types {
		if t.Number == number {
			return t, true
		}
	}
	return Type{}, false
}

// Name returns the name of a type, or the number in digits if there is no such type.
func Name(number int) string {
	if t, ok := Of(number); ok {
		return t.Name
	}
	return strconv.Itoa(number)
}
