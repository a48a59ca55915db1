package handlers

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-playground/validator/v10"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// newValidator returns a validator that names fields as in JSON.
func newValidator() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name
	})
	return v
}

// checker is a wire type with rules that tags cannot express.
type checker interface{ check() error }

// check checks v by its tags and then by its own rules.
func (b bodies) check(v any) error {
	if err := b.validate.Struct(v); err != nil {
		return tagFault(err)
	}
	if c, ok := v.(checker); ok {
		return c.check()
	}
	return nil
}

// tagFault turns the first failed tag into an error that names the field and what is allowed.
func tagFault(err error) error {
	fails, ok := errors.AsType[validator.ValidationErrors](err)
	if !ok || len(fails) == 0 {
		return err
	}
	f := fails[0]
	_, path, named := strings.Cut(f.Namespace(), ".")
	if !named { // an anonymous type adds no name
		path = f.Namespace()
	}
	be, unit := "be", ""
	if k := f.Kind(); k == reflect.String {
		be, unit = "have", " characters"
	} else if k == reflect.Slice || k == reflect.Map {
		be, unit = "have", " entries"
	}
	limit := func(words string) error {
		return fault.At(fault.Invalid, path, "must %s %s %s%s, not %s", be, words, f.Param(), unit, amount(f.Value()))
	}
	switch f.Tag() {
	case "required":
		return fault.At(fault.Missing, path, "is required")
	case "max", "lte":
		return limit("at most")
	case "min", "gte":
		return limit("at least")
	case "gt":
		return limit("more than")
	case "lt":
		return limit("less than")
	case "eq=-1|min=500": // max_wait_ms of turn_detection
		return fault.At(fault.Invalid, path, "must be -1 or at least 500, not %s", amount(f.Value()))
	case "oneof":
		return fault.At(fault.Invalid, path, "must be one of %s, not %q", strings.ReplaceAll(f.Param(), " ", ", "), text.Clip(fmt.Sprint(f.Value()), 60))
	}
	return fault.At(fault.Invalid, path, "is not allowed (%s %s)", f.Tag(), f.Param())
}

// amount returns a number, or the length of a text or list.
func amount(v any) string {
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		return strconv.Itoa(rv.Len())
	}
	return fmt.Sprint(v)
}
