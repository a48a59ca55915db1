package llmadapter

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
)

// partKinds are the types of the parts that appendPart sends on, thoughts and tools left out.
var partKinds = []string{
	"text", "input_text", "output_text", "refusal", "image_url", "input_image", "image", "input_audio", "audio", "audio_url", "video_url",
	"file", "input_file", "document",
}

// CheckParts refuses a message with a part that no upstream would be sent: see appendPart. Only
// llm.vendor "custom" passes parts of every type.
func (r *Request) CheckParts() error {
	for i := range r.Messages {
		m := &r.Messages[i]
		if !m.IsParts() {
			continue
		}
		n := 0
		var err error
		peek.Array(m.Content, func(part []byte) {
			if _, ok := appendPart(nil, part); !ok && err == nil {
				name := field(i, "content") + "[" + strconv.Itoa(n) + "]"
				kind := peek.At(part, "type").Str()
				if slices.Contains(partKinds, kind) {
					err = fault.At(fault.Invalid, name, "has no content that an LLM can be sent: a part of type %s needs its data or an https address", kind)
				} else {
					err = fault.At(fault.Invalid, name+".type", "must be one of %s, not %q", strings.Join(partKinds, ", "), text.Clip(kind, 40))
				}
			}
			n++
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// editParts returns an array of parts as it goes upstream: see appendPart. Parts that cannot be
// sent, which only a message has that did not come with a chat request, are left out. An array
// without parts is an empty text.
func editParts(content []byte, keep func(kind string) bool) []byte {
	out, changed := []byte{'['}, false
	peek.Array(content, func(part []byte) {
		before := len(out)
		if before > 1 {
			out = append(out, ',')
		}
		from := len(out)
		kind := ""
		if part[0] == '{' {
			kind = peek.At(part, "type").Str()
		}
		var ok bool
		if keep(kind) {
			out, ok = append(out, part...), true
		} else {
			out, ok = appendPart(out, part)
		}
		if !ok || len(out) == from {
			out, changed = out[:before], true
			return
		}
		changed = changed || string(out[from:]) != string(part)
	})
	switch {
	case len(out) == 1:
		return []byte(`""`)
	case !changed:
		return content
	}
	return append(out, ']')
}

// appendPart appends a part in the form of chat completions. Parts of the Responses API, of
// Anthropic's messages and of frameworks are translated; members that they share, such as
// cache_control, are kept. It appends nothing for what a model thought. ok is false for a part that
// cannot be sent.
func appendPart(dst, part []byte) (_ []byte, ok bool) {
	if len(part) == 0 || part[0] != '{' {
		return append(dst, part...), true
	}
	kind := peek.At(part, "type").Str()
	switch kind {
	case "text", "refusal", "input_audio", "audio_url", "video_url", "tool_use", "tool_result":
		return append(dst, part...), true
	case "input_text", "output_text":
		if _, ok := lookup(part, "text"); !ok {
			return dst, false
		}
		return appendEdited(dst, part, func(dst, name, v []byte) []byte {
			switch {
			case peek.NameIs(name, "type"):
				v = []byte(`"text"`)
			case peek.NameIs(name, "annotations"), peek.NameIs(name, "logprobs"):
				return dst
			}
			return append(append(append(dst, name...), ':'), v...)
		}), true
	case "image_url", "input_image", "image":
		return appendImage(dst, part)
	case "file", "input_file", "document":
		return appendFile(dst, part)
	case "audio":
		return appendAudio(dst, part)
	}
	return dst, isThought(kind)
}

// media is where a part has its bytes: an address, a data URL, or base64 with a type.
type media struct{ url, data, mime, name, detail, text, id string }

// mediaOf reads the members in which APIs and frameworks put the bytes of a part.
func mediaOf(part []byte) media {
	var m media
	_ = peek.Object(part, func(name, v []byte) error {
		n := peek.Unquote(name)
		if v[0] == '{' {
			switch n {
			case "source", "image_url", "file", "image", "input_image", "document", "audio":
				if in := mediaOf(v); in != (media{}) {
					in.detail, in.name = cmp.Or(in.detail, m.detail), cmp.Or(in.name, m.name)
					m = in
				}
			}
			return nil
		}
		if v[0] != '"' {
			return nil
		}
		s := peek.Unquote(v)
		switch n {
		case "url", "image_url", "file_url":
			m.url = s
		case "data", "base64", "file_data", "image", "bytes":
			switch {
			case strings.Contains(s, "://") || strings.HasPrefix(s, "data:"):
				m.url = s
			default:
				m.data = s
			}
		case "media_type", "mime_type", "mimeType", "mediaType", "format":
			m.mime = s
		case "detail":
			m.detail = s
		case "filename", "title", "name":
			m.name = s
		case "text":
			m.text = s
		case "file_id", "id":
			if n == "file_id" {
				m.id = s
			}
		}
		return nil
	})
	return m
}

// address returns the part's address; base64 becomes a data URL.
func (m *media) address(mime string) string {
	if m.data == "" {
		return m.url
	}
	if strings.Contains(m.mime, "/") {
		mime = m.mime
	}
	return "data:" + mime + ";base64," + m.data
}

// isOpenAI reports whether a part is in the form of chat completions already.
func isOpenAI(part []byte, kind string) bool {
	v, ok := lookup(part, kind)
	return ok && v[0] == '{' && peek.At(part, "type").Str() == kind
}

// appendMedia appends a part with an object of strings, and the cache_control of the original.
func appendMedia(dst, part []byte, kind string, members ...[2]string) []byte {
	dst = text.AppendJSON(append(dst, `{"type":`...), kind)
	dst = append(text.AppendJSON(append(dst, ','), kind), ":{"...)
	for _, m := range members {
		if m[1] == "" {
			continue
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = text.AppendJSON(append(text.AppendJSON(dst, m[0]), ':'), m[1])
	}
	dst = append(dst, '}')
	if v, ok := lookup(part, "cache_control"); ok {
		dst = append(append(dst, `,"cache_control":`...), v...)
	}
	return append(dst, '}')
}

func appendImage(dst, part []byte) ([]byte, bool) {
	if isOpenAI(part, "image_url") {
		return append(dst, part...), true
	}
	m := mediaOf(part)
	url := m.address("image/png")
	if url == "" {
		return dst, false
	}
	return appendMedia(dst, part, "image_url", [2]string{"url", url}, [2]string{"detail", m.detail}), true
}

func appendFile(dst, part []byte) ([]byte, bool) {
	if isOpenAI(part, "file") {
		return append(dst, part...), true
	}
	m := mediaOf(part)
	switch {
	case m.text != "" || strings.HasPrefix(m.mime, "text/plain") && m.data != "" && peek.At(part, "type").Str() == "document":
		return appendText(dst, part, cmp.Or(m.text, m.data)), true
	case strings.HasPrefix(m.mime, "image/"):
		return appendMedia(dst, part, "image_url", [2]string{"url", m.address(m.mime)}), true
	case m.id != "":
		return appendMedia(dst, part, "file", [2]string{"file_id", m.id}), true
	case m.data != "" || strings.HasPrefix(m.url, "data:"):
		return appendMedia(dst, part, "file", [2]string{"filename", m.name}, [2]string{"file_data", m.address("application/pdf")}), true
	}
	return dst, false
}

func appendText(dst, part []byte, words string) []byte {
	dst = text.AppendJSON(append(dst, `{"type":"text","text":`...), words)
	if v, ok := lookup(part, "cache_control"); ok {
		dst = append(append(dst, `,"cache_control":`...), v...)
	}
	return append(dst, '}')
}

func appendAudio(dst, part []byte) ([]byte, bool) {
	m := mediaOf(part)
	if m.data == "" {
		return dst, false
	}
	format := m.mime[strings.LastIndexByte(m.mime, '/')+1:]
	switch format {
	case "mpeg":
		format = "mp3"
	case "", "x-wav", "wave":
		format = "wav"
	}
	return appendMedia(dst, part, "input_audio", [2]string{"data", m.data}, [2]string{"format", format}), true
}

// ContentText returns the text of a message's content (JSON): a string itself, the text parts of an
// array joined by line breaks, or "" for anything else. What a model thought is not its text.
// Invalid UTF-8 becomes U+FFFD.
func ContentText(content []byte) string {
	if len(content) == 0 {
		return ""
	}
	switch content[0] {
	case '"':
		return peek.Unquote(content)
	case '[':
		var b strings.Builder
		peek.Array(content, func(part []byte) {
			if len(part) == 0 || part[0] != '{' || isThought(peek.At(part, "type").Str()) {
				return
			}
			t, ok := lookup(part, "text")
			if !ok || t[0] != '"' {
				return
			}
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(peek.Unquote(t))
		})
		return b.String()
	}
	return ""
}
