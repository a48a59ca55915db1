package statements

import (
	"bytes"

	"github.com/heardlog/heardlog/store/encryption"
)

// DataMark is the key in table meta of the check value of the master key. A database that has it
// seals with data keys.
const DataMark = "data"

const dataKeyColumns = "no, project, user_id, made_ms, wrapped"

func readDataKey(row Row) encryption.Wrapped {
	return encryption.Wrapped{
		Of: encryption.Of{Project: row.Text(1), User: row.Text(2)}, No: row.Int(0), MadeMS: row.Int(3), Key: bytes.Clone(row.Blob(4)),
	}
}

// DataKey returns the data key with a number, and whether there is one.
func DataKey(db Reader, no int64) (k encryption.Wrapped, found bool, err error) {
	found, err = first(db, func(row Row) { k = readDataKey(row) }, "SELECT "+dataKeyColumns+" FROM data_key WHERE no = ?", no)
	return k, found, err
}

// NewestKey returns the newest data key of an owner that was made after a time, and whether there
// is one. A lock, such as FOR KEY SHARE, keeps it from being destroyed.
func NewestKey(db Writer, of encryption.Of, afterMS int64, lock string) (k encryption.Wrapped, found bool, err error) {
	found, err = first(db, func(row Row) { k = readDataKey(row) },
		"SELECT "+dataKeyColumns+" FROM data_key WHERE project = ? AND user_id = ? AND made_ms > ? ORDER BY no DESC LIMIT 1"+lock, of.Project, of.User, afterMS)
	return k, found, err
}

// DestroyKeys deletes the data keys of a caller of a project or, with an empty user, of all of its
// callers, and returns their numbers. A caller who has calls or records keeps the key: they were
// stored while the caller was erased. lock is what locks the keys against use meanwhile.
func DestroyKeys(db Writer, project, user, lock string) (nos []int64, err error) {
	collect := func(sql string) (nos []int64, err error) {
		err = db.Each(sql, []any{project, user, user}, func(row Row) error { nos = append(nos, row.Int(0)); return nil })
		return nos, err
	}
	const of = "SELECT no FROM data_key k WHERE project = ? AND user_id <> '' AND (? = '' OR user_id = ?)"
	if nos, err = collect(of + " ORDER BY no" + lock); err != nil || len(nos) == 0 {
		return nil, err
	}
	// Another statement, which sees what was stored before the lock.
	nos, err = collect(of + ` AND NOT EXISTS (SELECT 1 FROM agent_tag g WHERE g.project = k.project AND g.name = '' AND g.value = k.user_id)
		AND NOT EXISTS (SELECT 1 FROM record_space s WHERE s.project = k.project AND s.user_id = k.user_id AND s.user_id <> '' AND s.n > 0)`)
	for _, no := range nos {
		if _, err := db.Exec("DELETE FROM data_key WHERE no = ?", no); err != nil {
			return nil, err
		}
	}
	return nos, err
}

// Rewrap wraps all data keys by another master key in one transaction, and replaces the check
// value. It returns how many there are.
func Rewrap(db Writer, from, to encryption.Wrapper) (n int, err error) {
	for after := int64(0); ; {
		var list []encryption.Wrapped
		err := db.Each("SELECT "+dataKeyColumns+" FROM data_key WHERE no > ? ORDER BY no LIMIT 500", []any{after}, func(row Row) error {
			list = append(list, readDataKey(row))
			return nil
		})
		if err != nil {
			return n, err
		}
		if len(list) == 0 {
			_, err = db.Exec("UPDATE meta SET value = ? WHERE key = '"+DataMark+"'", to.Mark())
			return n, err
		}
		for _, k := range list {
			wrapped, err := from.Rewrap(k, to)
			if err != nil {
				return n, err
			}
			if _, err := db.Exec("UPDATE data_key SET wrapped = ? WHERE no = ?", wrapped, k.No); err != nil {
				return n, err
			}
			after, n = k.No, n+1
		}
	}
}
