package platform_test

import (
	"testing"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/platform"
)

func TestNumber(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"+4930123456": "+4930123456", "+49 30 123-456": "+4930123456", "+49 (0)30 123456": "+4930123456", "004930123456": "+4930123456",
		"tel:+1-415-555-0100": "+14155550100", "sip:+14155550100@carrier.example;user=phone": "+14155550100", "whatsapp:+14155550100": "+14155550100",
		" +1 (415) 555.0100 ": "+14155550100",
		"4155550100":          "", "030 123456": "", "+0301234567": "", "+49": "", "+12345678901234567": "", "+49 30 CALLME": "", "anna": "", "": "", "client:anna": "",
		"+4930123456,": "", "sip:anna@example.com": "", "+４９３０１２３４５６": "+4930123456", "\u202a+4930123456\u202c": "+4930123456", "%2B4930123456": "+4930123456", "\u200e＋49 30 123456": "+4930123456",
	} {
		if got, ok := platform.Number(in); got != want || ok != (want != "") {
			t.Errorf("%q is %q %v, want %q", in, got, ok, want)
		}
	}
}

func TestWithheld(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		"+266696687": true, "+7378742833": true, "+86282452253": true, "Anonymous": true, "sip:anonymous@anonymous.invalid": true, "RESTRICTED": true,
		"+2562533": true, "+8656696": true, "+7748283": true, "Private Number": true, "No Caller ID": true, "undefined": true, "+10000000000": false, "+0000000000": true, "0000000": false, "7777777": false, "+33726662436": false,
		"\"Anonymous\" <sip:anonymous@anonymous.invalid>": true, "client:anonymous": true, "Unbekannt": true, "+9999999999": true, "tel:+2562533": true,
		"{{customer.number}}": true, "${From}": true, "{caller_id}": true, "#{number}": true, "-": true, "???": true, "N/A": true, "anonymous;tag=1": true, "anonymous@anonymous.invalid": true, "%2B266696687": true,
		`{"id":"17"}`: false, "a{b}": false, "na-17": false, "+": true, "anna;b": false,
		"+4930123456": false, "anna": false, "": false, "unknown-17": false,
	} {
		if got := platform.Withheld(in); got != want {
			t.Errorf("%q is withheld: %v", in, got)
		}
	}
}

// TestName: a number has one form; what is not clearly a number stays as it is.
func TestName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"+49 30 123456": "+4930123456", "tel:+49-30-123456": "+4930123456", " +49 30 123456": "+4930123456", `"Anna" <sip:+4930123456@example.org>`: "+4930123456", "sip:+4930123456@example.org": "+4930123456", "+1 (212) 555-0100": "+12125550100",
		"0049301234": "0049301234", "004930123456": "+4930123456", "0049 30 1234": "+49301234", "0000012345678": "0000012345678", "0012345678": "0012345678", "anna": "anna", "+anna": "+anna", "sip:anna@example.org": "sip:anna@example.org", "client:anna": "client:anna", "Private Number": "", "+8656696": "",
	} {
		if got, ok := platform.Name(in); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", in, got, ok, want)
		}
	}
}

// TestCaller: the number is found where each platform sends it, in any form. Withheld numbers name
// no caller.
func TestCaller(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"call":{"id":"c","customer":{"number":"+4930123456"}}}`:                                        "+4930123456",
		`{"customer":{"number":"+49 30 123456"}}`:                                                        "+4930123456",
		`{"call":{"from_number":"+4930123456"}}`:                                                         "+4930123456",
		`{"metadata":{"from_number":"004930123456"}}`:                                                    "+4930123456",
		`{"elevenlabs_extra_body":{"system__caller_id":"+4930123456"}}`:                                  "+4930123456",
		`{"metadata":{"telnyx_end_user_target":"+4930123456"}}`:                                          "+4930123456",
		`{"metadata":{"From":"whatsapp:+4930123456"}}`:                                                   "+4930123456",
		`{"metadata":{"sip.phoneNumber":"+4930123456"}}`:                                                 "+4930123456",
		`{"call":{"customer":{"number":"+266696687"}}}`:                                                  "",
		`{"metadata":{"from":"anonymous"}}`:                                                              "",
		`{"metadata":{"from":"sip:anonymous@anonymous.invalid"}}`:                                        "",
		`{"metadata":{"from":"reception"},"customer":{"number":17}}`:                                     "",
		`{"call":{"customer":{"number":"+266696687"}},"metadata":{"caller_id":"+4930123456","from":""}}`: "",
		`{}`: "",
	} {
		member := func(name string) []byte { return peek.At([]byte(body), name) }
		if got := platform.Caller(member); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
