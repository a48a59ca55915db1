package knowledge

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// The formats of documents.
const (
	Markdown = "markdown" // pieces at headings
	Text     = "text"     // pieces at blank lines
	JSONL    = "jsonl"    // a JSON object a line
	CSV      = "csv"      // a row an entry; the first row names the columns
)

// Bounds of imports.
const (
	MaxImport = 16 << 20 // bytes of a document
	MaxPiece  = 2000     // bytes of a piece of text
	MaxRows   = 100_000  // entries of a document
)

// draft is an entry of a document, or why there is none.
type draft struct {
	Entry
	line int
	err  error
}

// parse returns the entries of a document.
func parse(document, format, content string) ([]draft, error) {
	var out []draft
	var err error
	content = strings.TrimPrefix(content, "\ufeff")
	switch format {
	case Markdown:
		out = pieces(document, strings.Split(content, "\n"), headings)
	case Text:
		out = pieces(document, strings.Split(content, "\n"), nil)
	case JSONL:
		out = jsonLines(document, content)
	case CSV:
		out, err = rows(document, content)
	default:
		return nil, fault.At(fault.Invalid, "format", "must be markdown, text, jsonl or csv, not %q", text.Clip(format, 40))
	}
	switch {
	case err != nil:
		return nil, err
	case len(out) == 0:
		return nil, fault.At(fault.Invalid, "content", "has nothing to import")
	case len(out) > MaxRows:
		return nil, fault.At(fault.Invalid, "content", "has %d entries; at most %d are allowed", len(out), MaxRows)
	}
	return out, nil
}

// heading is one of a Markdown document. It stands on the given line and, if underlined, the next.
type heading struct {
	line, level int
	title       string
}

var (
	atx       = regexp.MustCompile(`^ {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*$`)
	underline = regexp.MustCompile(`^ {0,3}(=+|-+)[ \t]*$`)
	fence     = regexp.MustCompile("^ {0,3}(`{3,}|~{3,})")
	block     = regexp.MustCompile(`^ {0,3}([-*+>|#]|\d+[.)])|^ {4}|^\t`) // what is not a paragraph
)

// headings returns the headings of a Markdown document, by their lines from 0. What stands in
// fenced code or front matter is none.
func headings(lines []string) (out []heading) {
	open := "" // the fence of the code block that a line is in
	for i := 0; i < len(lines); i++ {
		l := strings.TrimSuffix(lines[i], "\r")
		if i == 0 && l == "---" { // front matter
			for end := 1; end < len(lines); end++ {
				if strings.TrimSpace(lines[end]) == "---" {
					i = end
					break
				}
			}
			continue
		}
		if m := fence.FindStringSubmatch(l); m != nil {
			switch {
			case open == "":
				open = m[1]
			case strings.HasPrefix(m[1], open) && strings.Trim(l, " \t"+open[:1]) == "":
				open = ""
			}
			continue
		}
		if open != "" {
			continue
		}
		if m := atx.FindStringSubmatch(l); m != nil {
			out = append(out, heading{i, len(m[1]), strings.TrimSpace(m[2])})
			continue
		}
		alone := i == 0 || strings.TrimSpace(lines[i-1]) == ""
		if alone && i+1 < len(lines) && strings.TrimSpace(l) != "" && !block.MatchString(l) {
			if m := underline.FindStringSubmatch(strings.TrimSuffix(lines[i+1], "\r")); m != nil {
				level := 1
				if m[1][0] == '-' {
					level = 2
				}
				out = append(out, heading{i, level, strings.TrimSpace(l)})
				i++
			}
		}
	}
	return out
}

// pieces cuts a text at its headings, and what is longer than MaxPiece at blank lines, else lines.
func pieces(document string, lines []string, headingsOf func([]string) []heading) (out []draft) {
	var marks []heading
	if headingsOf != nil {
		marks = headingsOf(lines)
	}
	marks = append(marks, heading{line: len(lines)})
	var path []heading
	from := 0
	for _, mark := range marks {
		var titles []string
		for _, h := range path {
			titles = append(titles, h.title)
		}
		first := from
		if len(path) > 0 && path[len(path)-1].line == from {
			first++ // its own heading, which says nothing alone
		}
		if first < mark.line && strings.TrimSpace(strings.Join(lines[first:mark.line], "")) != "" {
			out = cut(out, document, text.Clip(strings.Join(titles, " > "), MaxHeading-4), lines, from, mark.line)
		}
		for len(path) > 0 && path[len(path)-1].level >= mark.level {
			path = path[:len(path)-1]
		}
		path, from = append(path, mark), mark.line
	}
	return out
}

// cut appends the pieces of the lines from one up to another.
func cut(out []draft, document, heading string, lines []string, from, to int) []draft {
	add := func(content string, from, to int) { // from the line at from up to and with that at to
		if content = strings.TrimSpace(content); content == "" {
			return
		}
		part := 1
		if len(out) > 0 {
			part = out[len(out)-1].Source.Part + 1
		}
		out = append(out, draft{line: from + 1, Entry: Entry{
			ID: fmt.Sprintf("%s#%d", document, part), Content: content,
			Source: &Source{Document: document, Heading: heading, FromLine: from + 1, ToLine: to + 1, Part: part},
		}})
	}
	for to > from && strings.TrimSpace(lines[to-1]) == "" {
		to--
	}
	for from < to {
		if strings.TrimSpace(lines[from]) == "" {
			from++
			continue
		}
		if long := lines[from]; len(long) > MaxPiece {
			for len(long) > 0 {
				n := lineBreak(long)
				add(long[:n], from, from)
				long = long[n:]
			}
			from++
			continue
		}
		size, end, blank := 0, from, -1
		for ; end < to && size+len(lines[end])+1 <= MaxPiece; end++ {
			size += len(lines[end]) + 1
			if end > from && strings.TrimSpace(lines[end]) == "" {
				blank = end
			}
		}
		if end < to && blank > from {
			end = blank
		}
		end = max(end, from+1)
		last := end - 1
		for last > from && strings.TrimSpace(lines[last]) == "" {
			last--
		}
		add(strings.Join(lines[from:last+1], "\n"), from, last)
		from = end
	}
	return out
}

// lineBreak returns how many bytes of a line make its first piece: up to a space if there is one.
func lineBreak(line string) int {
	if len(line) <= MaxPiece {
		return len(line)
	}
	if space := strings.LastIndexAny(line[:MaxPiece], " \t"); space > 0 {
		return space + 1
	}
	n := MaxPiece
	for n > 1 && !utf8.RuneStart(line[n]) {
		n--
	}
	return n
}

// jsonLines returns an entry for each line. Members other than those of an entry are its data.
func jsonLines(document, content string) (out []draft) {
	for i, l := range strings.Split(content, "\n") {
		if strings.TrimSpace(l) == "" {
			continue
		}
		d := row(document, i+1)
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(l), &members); err != nil || members == nil {
			d.err = errors.New("must be a JSON object")
		} else {
			d.err = d.fill(members)
		}
		out = append(out, d)
	}
	return out
}

// row returns the draft of a line.
func row(document string, line int) draft {
	return draft{line: line, Entry: Entry{ID: fmt.Sprintf("%s#%d", document, line), Source: &Source{Document: document, FromLine: line, ToLine: line}}}
}

// fill sets the members of an entry.
func (d *draft) fill(members map[string]json.RawMessage) error {
	data := map[string]json.RawMessage{}
	for name, value := range members {
		var err error
		switch name {
		case "id":
			if err = json.Unmarshal(value, &d.ID); err != nil {
				d.ID, err = string(bytes.TrimSpace(value)), nil // such as a number
			}
		case "content":
			err = json.Unmarshal(value, &d.Content)
		case "tags":
			err = json.Unmarshal(value, &d.Tags)
		case "data":
			var own map[string]json.RawMessage
			if err = json.Unmarshal(value, &own); err == nil {
				for name, value := range own {
					data[name] = value
				}
			}
		default:
			data[name] = value
		}
		if err != nil {
			return fmt.Errorf("%s: has the wrong type", name)
		}
	}
	if len(data) > 0 {
		var err error
		d.Data, err = json.Marshal(data)
		return err
	}
	return nil
}

// rows returns an entry for each row of a table. The columns id, content and tags (separated by
// commas) are those of entries; others are the data, as texts.
func rows(document, content string) (out []draft, err error) {
	r := csv.NewReader(strings.NewReader(content))
	r.FieldsPerRecord = -1
	columns, err := r.Read()
	if err != nil {
		return nil, fault.At(fault.Invalid, "content", "is not CSV: its first row must name the columns")
	}
	seen := map[string]bool{}
	for i, c := range columns {
		columns[i] = strings.TrimSpace(c)
		if c = columns[i]; c == "" || seen[c] {
			return nil, fault.At(fault.Invalid, "content", "column %d of the first row must have a name of its own, not %q", i+1, text.Clip(c, 60))
		}
		seen[c] = true
	}
	for {
		values, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if fail, ok := errors.AsType[*csv.ParseError](err); ok { // what follows cannot be told apart
			return append(out, draft{line: fail.Line, err: fmt.Errorf("is not CSV: %w; the rest was not read", fail.Err)}), nil
		}
		line, _ := r.FieldPos(0)
		d := row(document, line)
		if len(values) != len(columns) {
			d.err = fmt.Errorf("has %d fields; the first row has %d", len(values), len(columns))
			out = append(out, d)
			continue
		}
		data := map[string]string{}
		for i, value := range values {
			switch columns[i] {
			case "id":
				d.ID = cmp.Or(value, d.ID)
			case "content":
				d.Content = value
			case "tags":
				for tag := range strings.SplitSeq(value, ",") {
					if tag = strings.TrimSpace(tag); tag != "" {
						d.Tags = append(d.Tags, tag)
					}
				}
			default:
				data[columns[i]] = value
			}
		}
		if len(data) > 0 {
			d.Data, d.err = json.Marshal(data)
		}
		out = append(out, d)
	}
}
