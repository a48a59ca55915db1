package statements

import (
	"github.com/heardlog/heardlog/store/record"
)

// EraseRecords erases the records of spaces that list returns, page by page. erase deletes a slice
// of them in one transaction. It returns how many records that were and which spaces are left.
func EraseRecords(list func(after record.Space) ([]SpaceRow, error), erase func([]SpaceRow) (int, []SpaceRow, error)) (erased int, err error) {
	for after := (record.Space{}); ; {
		spaces, err := list(after)
		if err != nil || len(spaces) == 0 {
			return erased, err
		}
		after = spaces[len(spaces)-1].At
		for len(spaces) > 0 {
			n, left, err := erase(spaces)
			if err != nil {
				return erased, err
			}
			erased, spaces = erased+n, left
		}
	}
}
