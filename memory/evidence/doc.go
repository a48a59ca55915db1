// Package evidence turns what voice platforms report about answers into evidence of what was heard.
// A Report is one statement about one answer: a heard text, word times, a playing time, a cut.
// Service.Record finds the answers that reports are about and updates them in the ledger. Better
// evidence replaces weaker evidence, whatever the order in which reports arrive; see memory.Method.
package evidence
