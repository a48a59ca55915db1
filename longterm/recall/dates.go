package recall

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// months, weekdays and the other lists hold the words of time in the languages that are most used.
var (
	months = wordMap(`january january janvier enero gennaio janeiro januari januar|february februar février febrero febbraio fevereiro februari|
		march märz mars marzo março maart|april avril abril aprile|may mai mayo maggio maio mei|june juni juin junio giugno junho|july juli juillet
		julio luglio julho|august août agosto augustus|september septembre septiembre settembre setembro|october oktober octobre octubre ottobre
		outubro|november novembre noviembre novembro|december dezember décembre diciembre dicembre dezembro`)
	weekdays = wordMap(`sunday sonntag dimanche domingo domenica zondag|monday montag lundi lunes lunedì maandag|tuesday dienstag mardi martes martedì
		dinsdag|wednesday mittwoch mercredi miércoles mercoledì woensdag|thursday donnerstag jeudi jueves giovedì donderdag|friday freitag vendredi
		viernes venerdì vrijdag|saturday samstag sonnabend samedi sábado sabato zaterdag`)
	// Words that tell when something happens.
	timeWords = wordSet(`yesterday today tomorrow tonight week weeks weekend month months year years ago last next recently soon day days summer winter
		spring fall autumn morning evening night birthday anniversary season
		gestern heute morgen vorgestern woche wochen monat monate monaten jahr jahre jahren tage tagen wochenende sommer herbst frühling letzte letzten nächste nächsten
		hier aujourd demain semaine semaines mois an ans année jours été hiver prochain prochaine dernier dernière
		ayer hoy mañana semana semanas mes meses año años días verano invierno próximo próxima pasado pasada
		ieri oggi domani settimana settimane mese mesi anno anni giorni estate scorso scorsa prossimo prossima
		ontem hoje amanhã mês ano anos dias gisteren vandaag week weken maand maanden jaar`)
	// Words of questions that ask when.
	whenWords = wordSet(`when date year month day long wann seit datum quand cuándo cuando quando wanneer когда när når hvornår milloin mikor când zaman`)
)

func wordMap(s string) map[string]int {
	m := map[string]int{}
	for i, names := range strings.Split(s, "|") {
		for _, w := range strings.Fields(names) {
			m[w] = i + 1
		}
	}
	return m
}

func wordSet(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

func hasTimeWord(words []word) bool {
	for _, w := range words {
		if timeWords[w.text] || months[w.text] > 0 || weekdays[w.text] > 0 {
			return true
		}
	}
	return false
}

// date is a day, a month (day 0) or a year (month 0).
type date struct{ year, month, day int }

// dayOf returns the day of a time, Unix ms, in UTC, counted from 1970.
func dayOf(ms int64) int32 { return int32(math.Floor(float64(ms) / (24 * 3600 * 1000))) }

func onDay(day int32) date {
	t := time.Unix(int64(day)*24*3600, 0).UTC()
	return date{t.Year(), int(t.Month()), t.Day()}
}

func (d date) time() time.Time {
	return time.Date(d.year, time.Month(max(d.month, 1)), max(d.day, 1), 0, 0, 0, 0, time.UTC)
}

// datesIn returns the dates that a query names. Relative ones are resolved against now, in UTC as
// the dates of turns.
func datesIn(words []word, now time.Time) []date {
	r := dateReader{words: words, now: now.UTC()}
	for i := range words {
		r.year(i)
		r.month(i)
		r.relative(i)
	}
	for _, y := range r.years {
		used := false
		for i := range r.found {
			if r.found[i].year == 0 {
				r.found[i].year = y
			}
			used = used || r.found[i].year == y
		}
		if !used {
			r.found = append(r.found, date{year: y})
		}
	}
	return r.found
}

// dateReader collects dates from words.
type dateReader struct {
	words []word
	now   time.Time
	found []date
	years []int // that were named; they belong to dates without one
}

// number returns the number at a place, or -1.
func (r *dateReader) number(i int) int {
	if i < 0 || i >= len(r.words) || !r.words[i].digits {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimRight(r.words[i].text, "stndrh"))
	if err != nil {
		return -1
	}
	return n
}

// text returns the word at a place, or "".
func (r *dateReader) text(i int) string {
	if i < 0 || i >= len(r.words) {
		return ""
	}
	return r.words[i].text
}

func isYear(n int) bool { return n >= 1970 && n < 2100 }

// year reads a year, alone or at the start of 2026-05-03.
func (r *dateReader) year(i int) {
	n := r.number(i)
	if !isYear(n) {
		return
	}
	r.years = append(r.years, n)
	if m, d := r.number(i+1), r.number(i+2); m >= 1 && m <= 12 && d >= 1 && d <= 31 {
		r.found = append(r.found, date{n, m, d})
	}
}

// month reads the name of a month with the day and the year around it.
func (r *dateReader) month(i int) {
	w := r.text(i)
	d := date{month: months[w]}
	if d.month == 0 || w == "may" && r.number(i-1) < 0 && r.number(i+1) < 0 && r.text(i-1) != "in" { // "may I"
		return
	}
	for _, at := range []int{i - 1, i + 1, i - 2} {
		if n := r.number(at); n >= 1 && n <= 31 && (at != i-2 || r.text(i-1) == "of") {
			d.day = n
			break
		}
	}
	for _, at := range []int{i + 1, i + 2} {
		if n := r.number(at); isYear(n) {
			d.year = n
		}
	}
	r.found = append(r.found, d)
}

// relative reads a word such as yesterday, or one such as month behind last, or 3 days ago.
func (r *dateReader) relative(i int) {
	w := r.text(i)
	if back := weekdays[w]; back > 0 && last(r.text(i-1)) {
		r.back("day", (int(r.now.Weekday())-(back-1)+6)%7+1)
	}
	switch w {
	case "today", "heute", "hoy", "oggi", "hoje", "vandaag", "tonight":
		r.back("day", 0)
	case "yesterday", "gestern", "ayer", "ieri", "ontem", "gisteren":
		r.back("day", 1)
	default:
		unit := units[w]
		switch {
		case unit == "":
		case agoBehind[r.text(i+1)]:
			r.ago(unit, i-1)
		case agoBefore[r.text(i-2)] && r.text(i-1) != "", r.text(i-2) == "a" && r.text(i-3) == "y": // il y a deux ans
			r.ago(unit, i-1)
		case unit != "day" && (last(r.text(i-1)) || last(r.text(i+1))): // el mes pasado
			r.back(unit, 1)
		}
		if months := seasons[w]; months != nil && (last(r.text(i-1)) || last(r.text(i+1)) && units[r.text(i+2)] == "") {
			r.season(months)
		}
	}
}

// ago reads how many units of time ago something was.
func (r *dateReader) ago(unit string, i int) {
	n := r.number(i)
	if n < 0 {
		n = smallNumbers[r.text(i)]
	}
	if n > 0 && n <= 1000 {
		r.back(unit, n)
	}
}

// Words that stand behind or before a span of time that has passed since.
var (
	agoBehind = wordSet("ago fa geleden atrás sedan siden")
	agoBefore = wordSet("vor hace há för")
)

// units are the words for spans of time.
var units = wordsFor(map[string]string{
	"day":   "day days tag tage tagen día días jour jours giorno giorni dia dias dag dagen dagar dage",
	"week":  "week weeks woche wochen semana semanas settimana settimane semaine semaines weken vecka veckor uge uger",
	"month": "month months monat monate monaten mes meses mese mesi mois maand maanden månad månader måned måneder mês",
	"year":  "year years jahr jahre jahren año años anno anni ano anos an ans année jaar år",
})

// seasons are the months of the seasons of the northern half of the earth, the first first.
var seasons = func() map[string][]int {
	out := map[string][]int{}
	for word, first := range wordsFor(map[string]string{
		"3": "spring frühling frühjahr printemps primavera lente voorjaar", "6": "summer sommer été verano estate verão zomer",
		"9": "autumn fall herbst automne otoño autunno outono herfst", "12": "winter hiver invierno inverno",
	}) {
		m, _ := strconv.Atoi(first)
		out[word] = []int{m, m%12 + 1, (m+1)%12 + 1}
	}
	return out
}()

// wordsFor returns what each word stands for.
func wordsFor(groups map[string]string) map[string]string {
	out := map[string]string{}
	for meaning, words := range groups {
		for _, w := range strings.Fields(words) {
			out[w] = meaning
		}
	}
	return out
}

// season adds the months of the last season of a kind that is over.
func (r *dateReader) season(months []int) {
	year := r.now.Year()
	if int(r.now.Month()) <= months[len(months)-1] {
		year--
	}
	for _, m := range months {
		y := year
		if months[0] == 12 && m == 12 { // a winter begins in the year before
			y--
		}
		r.found = append(r.found, date{y, m, 0})
	}
}

// back adds the date that many days, weeks, months or years ago.
func (r *dateReader) back(unit string, n int) {
	t := r.now
	switch unit {
	case "day", "week":
		if unit == "week" {
			n *= 7
		}
		t = t.AddDate(0, 0, -n)
		r.found = append(r.found, date{t.Year(), int(t.Month()), t.Day()})
	case "month":
		t = t.AddDate(0, 0, 1-t.Day()).AddDate(0, -n, 0) // from its first day: not every month has a 31st
		r.found = append(r.found, date{t.Year(), int(t.Month()), 0})
	case "year":
		r.years = append(r.years, t.Year()-n)
	}
}

func last(w string) bool {
	switch w {
	case "last", "past", "previous", "letzte", "letzten", "letzter", "pasado", "pasada", "último", "última", "dernier", "dernière", "vorigen", "vorigem", "letztem", "letztes", "vorige", "afgelopen", "passada", "scorso", "scorsa", "passado":
		return true
	}
	return false
}

var smallNumbers = map[string]int{
	"a": 1, "an": 1, "one": 1, "two": 2, "couple": 2, "three": 3, "few": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
	"ein": 1, "einem": 1, "einer": 1, "un": 1, "una": 1, "une": 1, "um": 1, "uma": 1, "een": 1, "zwei": 2, "dos": 2, "deux": 2, "due": 2, "dois": 2,
	"duas": 2, "twee": 2, "drei": 3, "tres": 3, "trois": 3, "tre": 3, "três": 3, "drie": 3, "vier": 4, "cuatro": 4, "quatre": 4, "quattro": 4, "quatro": 4,
}

// near returns how well a day fits the date.
func (d date) near(on date) float64 {
	switch {
	case d.year != 0 && d.month == 0:
		if d.year == on.year {
			return .5
		}
		return 0
	case d.year != 0 && d.day != 0:
		days := math.Abs(on.time().Sub(d.time()).Hours() / 24)
		score := math.Exp(-days / 3)
		if d.year == on.year && d.month == on.month {
			return 1 + score
		}
		if after := d.time().AddDate(0, 1, -d.day+1); after.Year() == on.year && int(after.Month()) == on.month {
			score += .4
		}
		return score
	case d.month == on.month && (d.year == 0 || d.year == on.year):
		if d.day != 0 {
			return 1 + math.Exp(-math.Abs(float64(d.day-on.day))/3)
		}
		return 1
	case on.month == d.month%12+1 && (d.year == 0 || d.year == on.year-b2i(d.month == 12)):
		return .4
	}
	return 0
}

// holds reports whether a day is meant by the date, or is the one before or after.
func (d date) holds(on date) bool {
	switch {
	case d.month == 0:
		return d.year == on.year
	case d.day != 0 && d.year != 0:
		return math.Abs(on.time().Sub(d.time()).Hours()) <= 24
	}
	return d.month == on.month && (d.year == 0 || d.year == on.year) && (d.day == 0 || d.day == on.day)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
