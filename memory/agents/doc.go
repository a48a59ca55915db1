// Package agents runs agents, from join to leave. It has every rule that does not depend on the
// store and needs more than the ledger: the clock, open answers, and other processes. Its nouns,
// each of which stands on those below it, are
//
//   - Agents: the life of an agent: join, update, leave, the lookup by keys, timers, retention,
//   - Turns: how an agent answers: begin, settle, cut, speak, and what was heard meanwhile,
//   - Messages: what is said: append, history, the ledger, and every write to it,
//   - Policies: how much of a memory a model is given.
//
// Service holds them. They read and write through a memory.Ledger. Package memory has the rules
// that follow from the ledger alone.
package agents
