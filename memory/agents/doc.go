// Package agents runs agents, from join to leave. Service has every rule that does not depend on
// the store and needs more than the ledger: the clock, answers in the making, and other processes.
//
//   - Join, Update, Leave, Erase: the life of an agent,
//   - Append, History, Messages: its ledger,
//   - Begin, Settle, Complete: one answer, as package internal/turn runs it,
//   - Interrupt, Cut, Speak: what happens while an answer is being sent,
//   - Follow: what changes, for live tails,
//   - Run: timers, and the coordination of several servers on one store.
//
// A Service reads and writes through a memory.Ledger. Package memory has the nouns and the rules
// that follow from the ledger alone.
package agents
