// Package importer holds the subcommands that bring to a running server what is kept elsewhere:
// Calls, the calls of hosted platforms, and Memories, what other products remember of callers. Both
// send each entry to the server's API, so that all of its rules hold, and a repeat changes nothing.
package importer
