package postgres_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// later matches statements, functions and settings that PostgreSQL 13, the oldest supported
// version, does not have.
var later = regexp.MustCompile(`(?i)\b(MERGE\s+INTO|NULLS\s+NOT\s+DISTINCT|SEARCH\s+(DEPTH|BREADTH)\s+FIRST|CYCLE\s+\w+\s+SET|GROUP\s+BY\s+DISTINCT|(?-i:IS\s+(NOT\s+)?JSON)|SECURITY_INVOKER|` +
	`DETACH\s+PARTITION\s+\w+\s+CONCURRENTLY|RETURNING\s+(WITH\s*\(|OLD\.|NEW\.)|STORED\s+COMPRESSION|VIRTUAL|WITHOUT\s+OVERLAPS|NOT\s+ENFORCED|ON_ERROR|BUFFER_USAGE_LIMIT|` +
	`(JSON_(TABLE|EXISTS|VALUE|QUERY|SCALAR|SERIALIZE|ARRAY|ARRAYAGG|OBJECT|OBJECTAGG)|date_bin|date_add|date_subtract|bit_count|bit_xor|string_to_table|trim_array|unistr|any_value|array_(shuffle|sample|reverse|sort)|` +
	`regexp_(count|instr|like|substr)|range_merge|unnest_multirange|random_normal|erf|to_bin|to_oct|uuidv[47]|uuid_extract_\w+|casefold|crc32c?|gamma|pg_log_\w+)\s*\(|` +
	`transaction_timeout|idle_session_timeout|client_connection_check_interval|recursive_worktable_factor|enable_presorted_aggregate)`)

// TestOldestServed checks that no statement needs more than PostgreSQL 13. It reads every string of
// the package and the schema.
func TestOldestServed(t *testing.T) {
	t.Parallel()
	for _, newer := range []string{"MERGE INTO agent", "UNIQUE NULLS NOT DISTINCT (a)", "SELECT json_table (x)", "SET transaction_timeout = 1", "SELECT any_value(x)", "x IS JSON", "RETURNING OLD.n"} {
		if !later.MatchString(newer) {
			t.Errorf("%q is not seen as new", newer)
		}
	}
	looked := 0
	look := func(where, sql string) {
		looked++
		if found := later.FindString(sql); found != "" {
			t.Errorf("%s: %q is newer than PostgreSQL 13", where, found)
		}
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				look(set.Position(lit.Pos()).String(), text)
			}
			return true
		})
	}
	steps, err := filepath.Glob("schema/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range steps {
		sql, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		look(name, string(sql))
	}
	if looked < 100 || len(steps) == 0 {
		t.Errorf("only %d texts were found, %d of them steps of the schema", looked, len(steps))
	}
}
