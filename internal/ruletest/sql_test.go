package ruletest_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ofCalls are the tables that a turn changes.
var ofCalls = []string{"agent", "agent_head", "agent_tag", "agent_key", "message", "item", "event", "delivery"}

// TestStatementsOfPostgres checks what databases that speak PostgreSQL have in common: no
// statement uses ctid, and none changes one of these tables in two ways. A statement is a text, or
// what a function puts together of parts, with those of the functions that it passes them to.
func TestStatementsOfPostgres(t *testing.T) {
	t.Parallel()
	inserts, updates := regexp.MustCompile(`(?i)INSERT INTO (\w+)`), regexp.MustCompile(`(?i)(?:UPDATE|DELETE FROM) (\w+)`)
	upserts := regexp.MustCompile(`(?is)INSERT INTO (\w+)[^;]*?ON CONFLICT[^;]*?DO UPDATE`)
	functions, places := map[string]*ast.FuncDecl{}, map[string]string{}
	statements := 0
	check := func(place, sql string) {
		statements++
		if regexp.MustCompile(`(?i)\bctid\b`).MatchString(sql) {
			t.Errorf("%s: a statement uses ctid, which other databases lack: %.100s", place, sql)
		}
		for _, m := range updates.FindAllStringSubmatch(sql, -1) {
			for _, in := range inserts.FindAllStringSubmatch(sql, -1) {
				if in[1] == m[1] && slices.Contains(ofCalls, m[1]) {
					t.Errorf("%s: a statement changes table %s in two ways: %.200s", place, m[1], sql)
				}
			}
		}
		for _, m := range upserts.FindAllStringSubmatch(sql, -1) {
			if m[1] == "message" || m[1] == "item" {
				t.Errorf("%s: a statement inserts and updates rows of %s", place, m[1])
			}
		}
	}
	for _, f := range goFiles(t) {
		if dir := filepath.ToSlash(filepath.Dir(f.name)); !strings.HasPrefix(dir, "store/postgres") && dir != "store/statements" || strings.HasSuffix(f.name, "_test.go") {
			continue
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && strings.HasPrefix(f.name, "store/postgres/") {
				functions[fn.Name.Name], places[fn.Name.Name] = fn, f.name
			}
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			if _, ok := n.(*ast.ImportSpec); ok {
				return false
			}
			for _, sql := range literal(n) {
				check(f.name, sql)
			}
			return true
		})
	}
	var parts func(fn *ast.FuncDecl, seen []string) string
	parts = func(fn *ast.FuncDecl, seen []string) string {
		var sql strings.Builder
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			for _, s := range literal(n) {
				sql.WriteString(s + "\n")
			}
			call, ok := n.(*ast.CallExpr)
			if !ok || !slices.ContainsFunc(call.Args, func(a ast.Expr) bool { id, ok := a.(*ast.Ident); return ok && id.Name == "st" }) {
				return true
			}
			name := ""
			switch f := call.Fun.(type) {
			case *ast.SelectorExpr:
				name = f.Sel.Name
			case *ast.Ident:
				name = f.Name
			}
			if next := functions[name]; next != nil && !slices.Contains(seen, name) {
				sql.WriteString(parts(next, append(seen, name)))
			}
			return true
		})
		return sql.String()
	}
	whole := 0
	for name, fn := range functions {
		makes := false
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if c, ok := n.(*ast.CompositeLit); ok {
				s, ok := c.Type.(*ast.SelectorExpr)
				makes = makes || ok && s.Sel.Name == "Parts"
			}
			return true
		})
		if makes {
			whole++
			check(places[name]+": "+name, parts(fn, []string{name}))
		}
	}
	if statements < 100 || whole < 3 {
		t.Errorf("only %d statements, %d of parts", statements, whole)
	}
}

// literal returns the value of a string literal.
func literal(n ast.Node) []string {
	l, ok := n.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return nil
	}
	s, err := strconv.Unquote(l.Value)
	if err != nil {
		return nil
	}
	return []string{s}
}

// TestSchemaOfPostgres checks that each unique index of the tables that grow with every message
// contains agent_no, by which they could be distributed, and that numbers have no order beside that
// of PostgreSQL's sequences.
func TestSchemaOfPostgres(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "store/postgres/schema/*.sql"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	var all strings.Builder
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	sql := regexp.MustCompile(`--.*`).ReplaceAllString(all.String(), "")
	for _, table := range []string{"message", "item", "agent_head", "agent_tag", "agent_key", "agent_seen", "agent_lease"} {
		unique := regexp.MustCompile(`(?i)CREATE UNIQUE INDEX (\w+) ON `+table+` \(([^)]*)\)`).FindAllStringSubmatch(sql, -1)
		if body := regexp.MustCompile(`(?s)CREATE TABLE ` + table + ` \((.*?)\n\)`).FindStringSubmatch(sql); body == nil {
			t.Errorf("there is no table %s", table)
		} else {
			for _, key := range regexp.MustCompile(`(?:PRIMARY KEY|UNIQUE) \(([^)]*)\)`).FindAllStringSubmatch(body[1], -1) {
				unique = append(unique, []string{"", "a key", key[1]})
			}
		}
		for _, u := range unique {
			// A call's own keys are unique among the live ones of a project, so that table is
			// distributed by project.
			if !strings.Contains(u[2], "agent_no") && !strings.Contains(u[2], "project") {
				t.Errorf("%s of table %s is on (%s): it would keep the table from being distributed", u[1], table, u[2])
			}
		}
	}
	if regexp.MustCompile(`(?i)\bctid\b|NO CYCLE|\bserial\b`).MatchString(sql) {
		t.Error("the schema uses ctid, or a sequence other than an identity column")
	}
}
