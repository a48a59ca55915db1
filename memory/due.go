package memory

import "context"

// ReportSpace is the space of records that holds a project's reports.
const ReportSpace = "report"

// Due is a call whose counts are to be brought into the reports.
type Due struct {
	Ref
	No  int64 // the store's number of the agent
	Rev int64 // of its head when it became due; 0 if the agent was erased
}

// DueCalls keeps which calls are due. A store notes an agent in the commit that ends it, that
// changes it after its end, or that erases it after its end.
type DueCalls interface {
	// DueProjects returns the projects that have calls that are due, in no order.
	DueProjects(ctx context.Context) ([]string, error)
	// Due returns calls of a project that are due, at most limit, by No, after the given No. It
	// returns none while an import is unfinished: agents are there before their messages.
	Due(ctx context.Context, project string, after int64, limit int) ([]Due, error)
	// Counted forgets calls, unless they have become due again since.
	Counted(ctx context.Context, project string, list []Due) error
}
