package turn

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// maxPassed limits a response that is passed through, in bytes.
const maxPassed = 64 << 20

// Passed is a request that is sent to an upstream as it is, without the memory.
type Passed struct {
	Method string // GET, POST or DELETE
	// Path begins with a slash and is relative to the upstream's base, such as /embeddings. The
	// caller has checked that it does not lead elsewhere.
	Path        string
	Query       string // without its question mark
	ContentType string
	Accept      string
	Body        []byte // nil sends none
}

// PassThrough sends a request to the upstream and its response to the client. agent holds the
// settings to use; its zero value means the server's own LLM. Neither retries nor fallbacks apply.
// A nil error means that all was written, ErrAborted that the connection must be aborted.
func (r *Runner) PassThrough(w http.ResponseWriter, req *http.Request, agent memory.LLMSettings, p Passed) error {
	if r.cfg.Client.Looped(req.Header) {
		return fault.At(fault.Invalid, "llm.url", "points back at this server")
	}
	if !r.start() {
		return fault.Wrap(fault.Unavailable, errShutdown, "the server is going down")
	}
	defer r.running.Done()
	llm := r.settings(agent)
	if llm.URL == "" {
		return fault.At(fault.Missing, "llm.url", "is not set, and the server has no default")
	}
	azure := llmadapter.IsAzure(llm.URL, llm.Vendor)
	url, ok := llmadapter.BeneathChat(llmadapter.ChatURL(llm.URL, azure, agent.URL != ""), p.Path, p.Query)
	if !ok {
		return fault.At(fault.Unsupported, "llm.url", "does not end in /chat/completions, so that the addresses beside it are not known")
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	limits := limitsOf(&llm)
	watch := llmadapter.NewWatch(limits, false, r.cfg.Now, cancel)
	defer watch.Stop()
	res, err := r.cfg.Client.Do(ctx, &llmadapter.Call{
		Method: p.Method, URL: url, APIKey: llm.APIKey.Reveal(), Azure: azure, Headers: reveal(llm.Headers), Client: req.Header,
		Body: p.Body, ContentType: p.ContentType, Accept: p.Accept, Connect: limits.Connect,
	})
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
	copyRateLimits(h, res.Header)
	if res.ContentLength >= 0 {
		h.Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
}

// copyOut passes on the body as it arrives. Between two pieces of it the limit for idle streams
// holds.
func (r *Runner) copyOut(w http.ResponseWriter, res *http.Response, watch *llmadapter.Watch) error {
	rc := http.NewResponseController(w)
	// The connection may serve another request.
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	buf := make([]byte, 16<<10)
	for total := int64(0); ; {
		n, err := res.Body.Read(buf)
		if total += int64(n); total > maxPassed {
			return tooLarge(maxPassed)
		}
		if n > 0 {
			watch.Data()
			// A writer without deadlines has none.
			_ = rc.SetWriteDeadline(time.Now().Add(r.cfg.WriteTimeout))
			if _, werr := w.Write(buf[:n]); werr != nil {
				return &llmadapter.WriteError{Err: werr}
			}
			if res.ContentLength < 0 {
				if werr := rc.Flush(); werr != nil {
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
