// Package ingest records agents that run elsewhere, at Agora, from the notifications about them. A
// Notice is one notification, decoded; Service.File adds it to the agent's facts (memory.Archive)
// and derives the agent and its messages from all facts so far.
//
// Notifications may arrive in any order, more than once, and contradict each other. Merging them is
// commutative, associative and idempotent, so the resulting record is always the same.
package ingest
