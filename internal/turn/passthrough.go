package turn

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// maxPassed limits a response that is passed through, in bytes.
const maxPassed = 64 << 20

// Passed is a request that is sent to an upstream as it is, without the memory.
type Passed struct {
	Method string // GET, HEAD, POST or DELETE
	// Path begins with a slash and is relative to the upstream's base, such as /embeddings. The
	// caller has checked that it does not lead elsewhere.
	Path        string
	Query       string // without its question mark
	ContentType string
	Accept      string
	Body        []byte // nil sends none
}

// ServeAside answers a client's chat completion without the memory: the agent's LLM gets the
// messages of the request as they are, and nothing is stored. Of llm.params it gets those that Ask
// sends. It fails as PassThrough does.
func (r *Runner) ServeAside(w http.ResponseWriter, req *http.Request, agent *memory.Agent, in *llmadapter.Request) error {
	now := r.cfg.Now()
	llm := r.settings(agent.Settings.LLM)
	if err := r.hideList(req.Context(), agent, in); err != nil {
		return err
	}
	a := llmadapter.Assembly{
		Request: in, InPlace: true, Model: llm.Model, Params: questionParams(llm.Params, false),
		To: llmadapter.Recipient{Members: llmadapter.PassedMembers()}, Shape: llm.Shape,
	}
	for i := range in.Messages {
		m := &in.Messages[i]
		if !m.IsSystem() {
			a.Messages = append(a.Messages, llmadapter.FromIncoming(m))
		}
	}
	h := w.Header()
	h.Set(AgentHeader, agent.ID)
	h.Set(MemoryHeader, "off")
	(&timing{arrived: now, begun: now, asked: r.cfg.Now()}).set(h)
	return r.PassThrough(w, req, agent.Settings.LLM, Passed{
		Method: http.MethodPost, Path: "/chat/completions", ContentType: "application/json", Accept: req.Header.Get("Accept"),
		Body: a.Append(make([]byte, 0, a.Size())),
	})
}

// hideList replaces personal data in the messages of a request, if the LLM is to see none.
func (r *Runner) hideList(ctx context.Context, agent *memory.Agent, in *llmadapter.Request) error {
	if !r.cfg.Redactor(agent).HidesFromUpstream() {
		return nil
	}
	given := slices.Clone(in.Messages)
	var lines []redact.Line
	for i := range given {
		lines = append(lines, redact.Line{Speaker: given[i].Role, Text: given[i].Text()})
	}
	return r.cfg.Redact(ctx, agent, func(by *redact.Redactor) {
		pieces := make([][]redact.Piece, len(lines))
		copy(pieces, by.Spread(lines))
		for i := range given {
			m, hide := given[i], by.Knowing(pieces[i])
			m.Raw, m.Content, m.ToolCalls = hide.Message(m.Raw), hide.Parts(m.Content), hide.Calls(m.ToolCalls)
			in.Messages[i] = m
		}
	})
}

// PassThrough sends a request to the upstream and its response to the client. agent holds the
// settings to use; its zero value means the server's own LLM. Neither retries nor fallbacks apply.
// A nil error means that all was written, ErrAborted that the connection must be aborted.
func (r *Runner) PassThrough(w http.ResponseWriter, req *http.Request, agent memory.LLMSettings, p Passed) error {
	call, limits, err := r.besideChat(req, agent, p.Path, p.Query)
	if err != nil {
		return err
	}
	if !r.start() {
		return fault.Wrap(fault.Unavailable, errShutdown, "the server is going down")
	}
	defer r.running.Done()
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	watch := llmadapter.NewWatch(limits, false, r.cfg.Now, cancel)
	defer watch.Stop()
	call.Method, call.Body, call.ContentType, call.Accept = p.Method, p.Body, p.ContentType, p.Accept
	res, err := r.cfg.Client.Do(ctx, call)
	if err != nil {
		return r.upstreamFault(w, err)
	}
	defer res.Body.Close()
	if err := readable(res); err != nil {
		return err
	}
	if res.ContentLength > maxPassed {
		return tooLarge(maxPassed)
	}
	passHeaders(w.Header(), res)
	w.WriteHeader(res.StatusCode)
	if err := r.copyOut(w, res, watch); err != nil {
		return errors.Join(ErrAborted, llmadapter.ReadFault(ctx, err))
	}
	return nil
}

// passHeaders copies those headers of an upstream that a client may see. A browser must not run the
// body as if it came from this server.
func passHeaders(h http.Header, res *http.Response) {
	for _, name := range []string{"Content-Type", "Content-Disposition", "Retry-After"} {
		if v := res.Header.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/octet-stream") // else net/http would guess it
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	llmadapter.CopyRateLimits(h, res.Header)
	if res.ContentLength >= 0 {
		h.Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
}

// copyOut passes on the body as it arrives. Between two pieces of it the limit for idle streams
// holds.
func (r *Runner) copyOut(w http.ResponseWriter, res *http.Response, watch *llmadapter.Watch) error {
	c := r.newWriter(w, &timing{})
	c.begun = true // the headers are sent
	defer c.done()
	buf := make([]byte, 16<<10)
	for total := int64(0); ; {
		n, err := res.Body.Read(buf)
		if total += int64(n); total > maxPassed {
			return tooLarge(maxPassed)
		}
		if n > 0 {
			watch.Data()
			if _, werr := c.Write(buf[:n]); werr != nil {
				return &llmadapter.WriteError{Err: werr}
			}
			if res.ContentLength < 0 {
				if werr := c.Flush(); werr != nil {
					return &llmadapter.WriteError{Err: werr}
				}
			}
		}
		if err == io.EOF { //nolint:errorlint // the end itself, not an end within something
			return nil
		}
		if err != nil {
			return err
		}
	}
}
