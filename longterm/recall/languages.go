package recall

import (
	"math/bits"
	"strings"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/danish"
	"github.com/blevesearch/snowballstem/dutch"
	"github.com/blevesearch/snowballstem/finnish"
	"github.com/blevesearch/snowballstem/french"
	"github.com/blevesearch/snowballstem/german"
	"github.com/blevesearch/snowballstem/hungarian"
	"github.com/blevesearch/snowballstem/italian"
	"github.com/blevesearch/snowballstem/norwegian"
	"github.com/blevesearch/snowballstem/porter"
	"github.com/blevesearch/snowballstem/portuguese"
	"github.com/blevesearch/snowballstem/romanian"
	"github.com/blevesearch/snowballstem/russian"
	"github.com/blevesearch/snowballstem/spanish"
	"github.com/blevesearch/snowballstem/swedish"
	"github.com/blevesearch/snowballstem/turkish"
)

// language is how the words of a language are stemmed and which of them carry no meaning.
type language struct {
	name    string
	stemmer func(*snowballstem.Env) bool
	stop    map[string]bool
}

// languages are those that are stemmed. The first is assumed where nothing else is known. English
// has the Porter stemmer, which finds a little more than its successor does.
var languages = []*language{
	newLanguage("english", porter.Stem, `a about after again all also am an and any are as at be because been before being
		but by can could d did didn do does doesn doing don down during each few for from further get got had has have having he
		her here hers herself him himself his how i if in into is isn it its itself just ll m me more most my myself no nor not
		now of off on once only or other our ours out over own re s same she should so some such t than that the their theirs
		them then there these they this those through to too under until up us ve very was wasn we were what when where which
		while who whom whose why will with would you your yours yourself im ive dont doesnt didnt isnt arent wasnt werent cant couldnt wont
		wouldnt shouldnt havent hasnt hadnt youre youve youll theyre theyve hes shes thats whats wheres whos hows theres heres lets itll id`),
	newLanguage("german", german.Stem, `aber als am an auch auf aus bei bin bis bist da das dass dein dem den der des die dies
		diese du ein eine einem einen einer er es für hab habe haben hat hatte hatten ich ihm ihn ihr im in ist ja kann kein keine
		man mein meine mich mir mit nach nicht noch nur oder sein seine sich sie sind so und uns vom von vor war waren was wann
		welche welcher welches wenn wer werden wie wir wird wo zu zum zur über
		meinem meiner meinen meins unser unsere unserem unseren unserer unseres dich dir euch ihre ihrem ihren ihrer seinem seinen seiner einer diesem diesen
		dieser dieses denn doch jemand mehr schon sehr viel viele welchem welchen wurde wurden möchte möchten`),
	newLanguage("french", french.Stem, `ai as au aux avec avez avons c ce ces cette comment d dans de des du elle elles en est et
		eu il ils j je l la le les leur lui m ma mais me mes moi mon n ne nos notre nous on ont ou où par pas pour qu quand que quel
		quelle qui s sa se ses si son sont sur t ta te tes toi ton tu un une vos votre vous y à été êtes était
		quels quelles cet notres leurs quelqu lorsque`),
	newLanguage("spanish", spanish.Stem, `a al como con cual cuando cuándo de del desde donde dónde el ella ellos en es esa ese eso
		esta está este esto fue ha hay he la las le les lo los me mi mis muy más nada no nos nosotros o para pero por porque que qué
		quien quién se ser si sin sobre son soy su sus también te tengo tiene tu tus un una uno y ya yo`),
	newLanguage("italian", italian.Stem, `a ai al alla anche c che chi ci come con da dal dei del della delle di dove e ed era gli ha
		hai ho i il in io l la le lei lo loro lui ma mi mia mie mio nel nella noi non o per perché più quando quale quello questa
		questo se si sono su sua suo ti tra tu un una uno è`),
	newLanguage("portuguese", portuguese.Stem, `a ao aos as com como da das de do dos e ela ele em entre era essa esse esta este
		eu foi há isso já lhe mais mas me meu minha muito na nas no nos nossa não o onde os ou para pela pelo por porque qual quando
		que quem se sem ser seu sua são só também te tem tenho um uma você é`),
	newLanguage("dutch", dutch.Stem, `aan al als bij dat de deze die dit doe door dus een en er ga geen had heb hebben heeft het hij
		hoe ik in is je jij kan maar me meer met mij mijn naar niet nog nu of om onder ons ook op over te toen tot uit van veel voor
		waar wanneer waren was wat we welke wie wij wil zal ze zich zij zijn zo zou`),
	newLanguage("russian", russian.Stem, `а без более бы был была были было в вам вас во вот все всё вы где да для до его ее её если
		есть ещё еще же за и из или им их к как какой когда кто ли мне меня мой моя мы на над не него нет но о об он она они от по под
		при с со так такой там то только ты у уже что чтобы эта это этот я`),
	newLanguage("swedish", swedish.Stem, `alla att av bara blev de dem den denna det detta dig din du där då efter ej eller en er
		ett från för han har henne hennes hon hur här i inte jag kan man med men mig min mina mitt mot mycket ni nu när och också om
		oss på sig sin som så till under upp ut vad var vara vi vid vilken än är åt över`),
	newLanguage("norwegian", norwegian.Stem, `alle at av bare ble da de deg den denne der det dette du eller en er et etter for fra
		før ha hadde han har hun hva hvem hvor i ikke jeg kan man med meg men min mitt mot nå når og også om opp oss på seg sin som så
		til ut var ved vi være å`),
	newLanguage("danish", danish.Stem, `af alle at blev da de dem den denne der det dig din du efter eller en end er et for fra ham
		han har havde hende hun hvad hvem hvor hvornår i ikke jeg kan man med meget men mig min mit mod nej nu når og også om op os på
		sig sin som så til ud var ved vi vil være`),
	newLanguage("finnish", finnish.Stem, `ei ja että en et hän he ja jo joka jos kanssa koska kuin kun me mikä milloin minun minä missä
		mitä mutta myös ne niin no nyt oli olen olet on ovat se sen sinä siis sitä tai te tämä vain vielä`),
	newLanguage("hungarian", hungarian.Stem, `a az be csak de egy el én és ez ha hogy hol hogyan is itt ki kell le még meg mert mi
		mikor mit most nagyon nem nekem nincs ő ők olyan ott sem te ti van vagy volt`),
	newLanguage("romanian", romanian.Stem, `a ai al am are au ca care ce când cu cum da dar de din e ea ei el este eu fi fost îi îmi în
		la mai mă mea meu mi nu o pe pentru pot sau se și să sunt te tu un una unde va vă`),
	newLanguage("turkish", turkish.Stem, `ama ben benim bir biz bu çok da daha de değil diye en gibi hem için ile işte ki kim mi mı ne
		neden nerede nasıl o olan olarak on onu sen şu siz var ve veya ya yok zaman`),
}

// stopWords maps each word without meaning to its languages, a bit for each in their order.
var stopWords = func() map[string]uint32 {
	m := map[string]uint32{}
	for i, l := range languages {
		for w := range l.stop {
			m[w] |= 1 << i
		}
	}
	return m
}()

func newLanguage(name string, stemmer func(*snowballstem.Env) bool, stop string) *language {
	l := &language{name: name, stemmer: stemmer, stop: map[string]bool{}}
	for _, w := range strings.Fields(stop) {
		l.stop[w] = true
	}
	return l
}

// languageOf returns the language of a text by the words without meaning in it, or nil if they do
// not decide.
func languageOf(words []word) *language {
	var counts [32]int
	for _, w := range words {
		for mask := stopWords[w.text]; mask != 0; mask &= mask - 1 {
			counts[bits.TrailingZeros32(mask)]++
		}
	}
	var best *language
	most, second := 0, 0
	for i, l := range languages {
		n := counts[i]
		if n > most {
			best, most, second = l, n, most
		} else if n > second {
			second = n
		}
	}
	if most == second {
		return nil
	}
	return best
}
