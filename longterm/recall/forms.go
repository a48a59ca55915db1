package recall

import "strings"

// irregular are the forms of words that no stemmer brings together, and spellings and everyday
// names of the same thing, by language: the first of each group stands for all.
var irregular = map[string]map[string]string{
	"english": formsOf(`begin began begun|bite bit bitten|blow blew blown|break broke broken|bring brought|build built|burn burnt|buy bought|
		catch caught|choose chose chosen|cling clung|come came|creep crept|cut cutting|deal dealt|dig dug|draw drew drawn|dream dreamt|drink drank drunk|
		drive drove driven|eat ate eaten|fall fell fallen|feed fed|feel felt|fight fought|find found|flee fled|fly flew flown flies|forbid forbade forbidden|
		forget forgot forgotten|forgive forgave forgiven|freeze froze frozen|give gave given|go went gone|grow grew grown|hang hung|hear heard|hide hid hidden|
		hit hitting|hold held|hurt hurting|keep kept|know knew known|lay laid|lead led|lean leant|learn learnt|leave left|lend lent|let letting|light lit|
		lose lost|make made|mean meant|meet met|pay paid|ride rode ridden|ring rang rung|rise rose risen|run ran|say said|see saw seen|seek sought|sell sold|
		send sent|sew sewn|shake shook shaken|shine shone|shoot shot|show shown|sing sang sung|sink sank sunk|sit sat|sleep slept|slide slid|smell smelt|
		speak spoke spoken|speed sped|spend spent|spill spilt|spin spun|spread spreading|stand stood|steal stole stolen|stick stuck|sting stung|strike struck|
		swear swore sworn|sweep swept|swim swam swum|swing swung|take took taken|teach taught|tear tore torn|tell told|think thought|throw threw thrown|
		understand understood|wake woke woken|wear wore worn|weep wept|win won winning|write wrote written|die died dying|lie lying|
		child children kid kids|man men|woman women|foot feet|tooth teeth|mouse mice|goose geese|wife wives|life lives|knife knives|leaf leaves|half halves|
		shelf shelves|mother mom moms mum mums mommy mummy mama|father dad dads daddy papa|grandmother grandma granny nana|grandfather grandpa|
		grandparent grandparents|favorite favourite favorites favourites fave|color colour colors colours|flavor flavour flavors flavours|neighbor neighbour neighbors neighbours|
		honor honour|behavior behaviour|center centre|theater theatre|organize organise organized organised|traveler traveller|gray grey|tire tyre|program programme|
		jewelry jewellery|pajamas pyjamas|allergy allergies allergic allergen|photo photos photograph photographs picture pictures pic pics|
		television tv telly|movie movies film films|bicycle bike bikes bicycles|refrigerator fridge|phone telephone phones|mobile cellphone cell|
		doctor doc doctors physician|veterinarian vet|apartment flat apartments|vacation holiday vacations holidays|automobile car cars auto|
		advertisement ad ads advert|examination exam exams|mathematics math maths|laboratory lab|gymnasium gym|okay ok|
		marry married marriage wedding|sick ill illness|arrive arrival arrived|choose choice choices|decide decision decisions|behave behavior|
		succeed success successful|lose loss losses|grow growth|hate hatred|advise advice|believe belief beliefs|prove proof|
		weigh weight|long length|strong strength|high height|wide width|hot heat|angry anger|hungry hunger|thirsty thirst|proud pride|free freedom|
		born birth|dead death|young youth|speak speech|sell sale|think thoughts|live life`),
}

// formsOf reads groups of words, each of which stands for its first.
func formsOf(groups string) map[string]string {
	out := map[string]string{}
	for group := range strings.SplitSeq(groups, "|") {
		words := strings.Fields(group)
		for _, w := range words[1:] {
			out[w] = words[0]
		}
	}
	return out
}
