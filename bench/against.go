package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// part is one part of a run: it measures the server b.bin and adds rows to the report.
type part func(*bench, context.Context) error

// measureBoth runs a part with the built server and with the one of -against, in turn, one round
// each time, and adds the medians of both to the report.
func (b *bench) measureBoth(ctx context.Context, p part) error {
	var rows, others [][]check // by round
	for round := range b.rounds {
		sides := []struct {
			name, bin string
			rows      *[][]check
		}{{"built", b.bin, &rows}, {"against", b.against, &others}}
		if round%2 == 1 {
			slices.Reverse(sides) // so that neither server is always the second
		}
		for _, side := range sides {
			b.sayf("  round %d, %s:", round+1, side.name)
			got, err := b.oneRound(ctx, p, side.bin)
			if err != nil {
				return fmt.Errorf("the server %s: %w", side.bin, err)
			}
			*side.rows = append(*side.rows, got)
		}
	}
	b.sayf("  medians:")
	for i := range rows[0] {
		c, err := medianRow(rows, i)
		if err != nil {
			return err
		}
		other, err := medianRow(others, i)
		if err != nil {
			return err
		}
		if c.what != other.what {
			return fmt.Errorf("row %d is %q of one server and %q of the other", i+1, c.what, other.what)
		}
		c.other, c.otherNote = other.value, other.note
		b.add(c)
	}
	return nil
}

// oneRound runs a part once with a server of its own folder, and returns its rows.
func (b *bench) oneRound(ctx context.Context, p part, bin string) (rows []check, err error) {
	dir, err := os.MkdirTemp(b.dir, "round-")
	if err != nil {
		return nil, err
	}
	one := &bench{report: report{out: b.out}, sizes: b.sizes, bin: bin, dir: dir, level: b.level, rounds: 1, postgres: b.postgres}
	err = p(one, ctx)
	one.stopAll()
	if err != nil {
		return nil, err
	}
	return one.checks, os.RemoveAll(dir)
}

// medianRow returns the round of row i whose figure is the median; of an even number of rounds the
// lower one, so that its note belongs to it.
func medianRow(rounds [][]check, i int) (check, error) {
	var of []check
	for _, rows := range rounds {
		if i >= len(rows) {
			return check{}, errors.New("the rounds of one part have different rows")
		}
		of = append(of, rows[i])
	}
	slices.SortStableFunc(of, func(a, b check) int { return cmp.Compare(a.value, b.value) })
	return of[(len(of)-1)/2], nil
}

// absolute makes a path absolute; "" stays "".
func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}
