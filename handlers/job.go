package handlers

import (
	"net/http"

	"github.com/heardlog/heardlog/job"
)

// jobJSON is a background job in answers.
type jobJSON struct {
	Kind  string    `json:"kind"`
	ID    string    `json:"id,omitempty"`
	State job.State `json:"state"`
	Since string    `json:"since,omitempty"`
	Due   string    `json:"due,omitempty"`
	Tries int       `json:"tries"`
	Error string    `json:"error,omitempty"`
}

// listJobs serves GET /v1/jobs: the jobs of the project that this server knows.
func (a *api) listJobs(r *http.Request) (any, error) {
	state, err := job.ParseState("state", r.URL.Query().Get("state"))
	if err != nil {
		return nil, err
	}
	out := struct {
		Jobs []jobJSON `json:"jobs"`
	}{[]jobJSON{}}
	for _, i := range a.jobs(projectOf(r), state) {
		out.Jobs = append(out.Jobs, jobJSON{i.Kind, i.ID, i.State, shownTime(i.SinceMS), shownTime(i.DueMS), i.Tries, i.Error})
	}
	return out, nil
}
