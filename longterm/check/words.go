package check

import (
	"cmp"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory/heard"
)

// phrases are words and sequences of words, by their first word, the longest first. They are
// compared in their normal form, in which each Chinese and Japanese character is a word.
type phrases map[string][][]string

// phrasesOf reads phrases that are separated by commas or line breaks.
func phrasesOf(list string) phrases {
	p := phrases{}
	for _, phrase := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '\n' }) {
		words := strings.Fields(heard.Normalize(phrase))
		if len(words) > 0 && strings.TrimSpace(phrase) != "" {
			p[words[0]] = append(p[words[0]], words)
		}
	}
	for _, list := range p {
		slices.SortStableFunc(list, func(a, b []string) int { return cmp.Compare(len(b), len(a)) })
	}
	return p
}

// at returns how many words from the first on are the longest phrase there; 0 for none.
func (p phrases) at(words []string) int {
	if len(words) == 0 {
		return 0
	}
	for _, phrase := range p[words[0]] {
		if len(words) >= len(phrase) && slices.Equal(words[:len(phrase)], phrase) {
			return len(phrase)
		}
	}
	return 0
}

// has reports whether one of the phrases stands anywhere in the words.
func (p phrases) has(words []string) bool {
	for i := range words {
		if p.at(words[i:]) > 0 {
			return true
		}
	}
	return false
}

// only reports whether the words are nothing but phrases.
func (p phrases) only(words []string) bool {
	for len(words) > 0 {
		n := p.at(words)
		if n == 0 {
			return false
		}
		words = words[n:]
	}
	return true
}

// found returns the phrases in the words, sorted.
func (p phrases) found(words []string) (out []string) {
	for i := 0; i < len(words); i++ {
		if n := p.at(words[i:]); n > 0 {
			out = append(out, strings.Join(words[i:i+n], " "))
			i += n - 1
		}
	}
	slices.Sort(out)
	return out
}

// The lists, a line for each language: English, German, French, Spanish, Italian, Portuguese,
// Dutch, Russian, Swedish, Norwegian, Danish, Finnish, Hungarian, Romanian, Turkish, Polish,
// Chinese, Japanese, Korean, Hindi, Arabic.
var (
	// again are words of a caller who did not hear or understand, or wants to hear it again.
	again = phrasesOf(`again, repeat, pardon, sorry, excuse me, what was that, what did you say, say that, come again, didnt hear, didnt catch, didnt get, didnt understand, did not hear, did not catch, did not get, did not understand, dont understand, do not understand, cant hear, cannot hear, hear you, missed that, missed it, missed the, one more time, once more, slower, slowly, louder, hello, go ahead, go on, continue, im ready, a pen, write that down, write it down, note that, remind me, spell, recap, summarize, summary, breaking up, you there, lost you, huh, confirm, check, so its, so thats, you said, you mentioned, remember, forgot, confused, what do you mean, tell me, give me, let me know, just to be sure, are you sure, is that right, correct, read it back, the line
		nochmal, noch mal, noch einmal, nochmals, wiederholen, wiederhole, wiederhol, wie bitte, bitte was, entschuldigung, sorry, verzeihung, nicht verstanden, nicht gehört, verstehe nicht, verstehe sie nicht, höre sie nicht, hör sie nicht, langsam, langsamer, lauter, hallo, weiter, stift, aufschreiben, notieren, mitschreiben, erinnern, buchstabieren, zusammenfassen, verbindung, abgehackt, hä, bestätigen, sagten sie, gesagt, vergessen, sagen sie mir, geben sie mir, sicher, stimmt das, richtig, meinen sie
		encore, répéter, répétez, répète, redire, redites, pardon, désolé, désolée, excusez, pas compris, pas entendu, comprends pas, entends pas, entends mal, entends, lentement, plus fort, allo, allô, continuez, allez y, stylo, noter, je note, rappeler, rappelez moi, épeler, épelez, récapituler, résumer, ça coupe, hein, confirmer, avez dit, disiez, oublié, dites moi, donnez moi, sûr, correct
		otra vez, repetir, repita, repite, repítame, de nuevo, perdón, disculpe, lo siento, cómo dice, no entendí, no escuché, no oí, no entiendo, no le oigo, no oigo, no escucho, despacio, más alto, hola, siga, continúe, adelante, bolígrafo, apuntar, anotar, apunto, recordar, recuérdeme, deletrear, resumir, se corta, confirmar, dijo, olvidé, dígame, deme, seguro, correcto
		di nuovo, ancora, ripetere, ripeta, ripeti, può ripetere, scusi, scusa, mi scusi, come dice, prego, non ho capito, non ho sentito, non capisco, non sento, non la sento, lentamente, piano, più forte, pronto, continui, avanti, vada, penna, scrivere, annotare, ricordare, ricordarmi, sillabare, riassumere, cade la linea, confermare, ha detto, dimenticato, mi dica, mi dia, sicuro, corretto
		outra vez, de novo, novamente, repetir, repita, repete, desculpe, desculpa, perdão, como disse, não entendi, não ouvi, não percebi, não escutei, não ouço, devagar, mais alto, alô, continue, pode falar, caneta, anotar, lembrar, soletrar, resumir, cortando, confirmar, disse, esqueci, me diga, me dê, certeza, correto
		opnieuw, nog een keer, nogmaals, nog eens, herhalen, herhaal, sorry, pardon, wat zei, wat zegt, niet verstaan, niet gehoord, niet begrepen, versta u niet, hoor u niet, begrijp het niet, langzamer, langzaam, harder, hallo, ga door, ga verder, pen, opschrijven, noteren, herinneren, spellen, samenvatten, valt weg, bevestigen, zei u, vergeten, vertel me, zeg me, zeker, klopt
		ещё раз, еще раз, повторите, повтори, повторить, снова, простите, извините, что вы сказали, не понял, не поняла, не расслышал, не расслышала, не слышу, не слышно, не понимаю, медленнее, помедленнее, громче, алло, продолжайте, ручку, ручка, записать, записываю, напомните, по буквам, прерывается, подтвердите, сказали, забыл, забыла, скажите, уверены, правильно
		igen, en gång till, upprepa, repetera, förlåt, ursäkta, va sa, vad sa, hörde inte, förstod inte, förstår inte, hör inte, långsammare, högre, hallå, fortsätt, penna, anteckna, skriva upp, påminn, stava, sammanfatta, bekräfta, sa du, glömde, säker, stämmer
		igjen, en gang til, gjenta, unnskyld, beklager, hva sa, hørte ikke, forstod ikke, forsto ikke, forstår ikke, hører ikke, saktere, høyere, hallo, fortsett, penn, notere, skrive ned, minn, stave, oppsummer, bekreft, sa du, glemte, sikker, stemmer
		igen, en gang til, gentage, gentag, undskyld, beklager, hvad sagde, hørte ikke, forstod ikke, forstår ikke, hører ikke, langsommere, højere, hallo, fortsæt, kuglepen, notere, skrive ned, mind mig, stave, opsummer, bekræft, sagde du, glemte, sikker, passer
		uudelleen, uudestaan, toista, toistaa, toistaisitko, anteeksi, mitä sanoit, en kuullut, en ymmärtänyt, en ymmärrä, en kuule, hitaammin, kovempaa, haloo, jatka, kynä, kirjoittaa, muistuta, tavaa, vahvista, sanoit, unohdin, varma
		még egyszer, ismételje, ismételd, megismételné, újra, bocsánat, elnézést, tessék, nem értettem, nem hallottam, nem értem, nem hallom, lassabban, hangosabban, halló, folytassa, toll, leírom, emlékeztessen, betűzze, megerősít, mondta, elfelejtettem, biztos
		din nou, încă o dată, repetați, repeta, repetă, scuze, scuzați, poftim, ce ați spus, nu am înțeles, nu am auzit, nu înțeleg, nu aud, mai rar, mai tare, alo, continuați, pix, notez, amintiți, litere, confirmați, ați spus, uitat, sigur, corect
		tekrar, bir daha, yeniden, tekrarlar, pardon, özür dilerim, afedersiniz, efendim, anlamadım, duymadım, duyamadım, anlamıyorum, duyamıyorum, yavaş, daha yüksek, alo, devam, kalem, yazayım, hatırlat, heceler, onayla, dediniz, unuttum, emin, doğru
		jeszcze raz, powtórzyć, powtórz, proszę powtórzyć, ponownie, przepraszam, słucham, nie zrozumiałem, nie zrozumiałam, nie usłyszałem, nie usłyszałam, nie słyszę, nie rozumiem, wolniej, głośniej, halo, kontynuować, długopis, zapisać, zapiszę, przypomnieć, przeliterować, potwierdzić, powiedział, zapomniałem, zapomniałam, na pewno
		再说, 再說, 重复, 重複, 再讲, 再一次, 再来, 没听清, 沒聽清, 没听见, 没听到, 听不清, 听不见, 没听懂, 没明白, 不明白, 什么, 什麼, 不好意思, 对不起, 抱歉, 慢一点, 慢点, 大声, 喂, 继续, 记一下, 笔, 提醒我, 确认, 你说, 您说, 刚才, 忘了, 告诉我, 确定
		もう一度, もう一回, 繰り返し, 繰り返して, 聞こえ, 聞き取れ, 聞き逃, わかりません, 分かりません, すみません, すいません, なんて, なんと, ゆっくり, 大きな声, もしもし, 続けて, メモ, ペン, 確認, おっしゃ, 忘れ, 教えて
		다시, 한번 더, 한 번 더, 반복, 뭐라고, 못 들었, 못 들었어요, 못들었어요, 안 들려요, 잘 안 들려요, 이해 못, 죄송, 죄송합니다, 미안, 천천히, 크게, 여보세요, 계속, 적을게요, 메모, 확인, 잊어버렸어요, 알려, 알려주세요, 말씀
		फिर से, दोबारा, दुबारा, एक बार और, माफ़ कीजिए, माफ कीजिए, सॉरी, सुनाई नहीं, नहीं सुना, समझ नहीं, समझा नहीं, समझी नहीं, धीरे, ज़ोर से, जोर से, हेलो, हैलो, आगे, लिख, याद, पुष्टि, कहा, भूल, बताइए, बताओ, क्या कहा, पक्का
		مرة أخرى, مرة ثانية, كرر, أعد, تعيد, تكرر, عفوا, عفواً, آسف, اسف, معذرة, لم أسمع, لم افهم, لم أفهم, ما سمعت, ما فهمت, لا أسمع, لا أفهم, ببطء, أعلى, الو, ألو, أكمل, قلم, أكتب, ذكرني, تأكيد, قلت, نسيت, أخبرني, متأكد`)
	// misheard are words of an agent that has not understood the caller.
	misheard = phrasesOf(`repeat, pardon, say that again, come again, didnt hear, didnt catch, didnt get, didnt quite, didnt understand, did not hear, did not catch, did not get, did not understand, dont understand, could not understand, couldnt understand, missed that, hear you, not valid, invalid, not a valid, didnt recognize, didnt find, couldnt find, could not find
		wiederholen, wie bitte, nicht verstanden, nicht gehört, verstehe nicht, akustisch, ungültig, nicht gefunden, nicht finden
		répéter, répétez, pas compris, pas entendu, pas saisi, comprends pas, invalide, pas valide, pas trouvé
		repetir, repita, repetirlo, no entendí, no he entendido, no escuché, no oí, no le oí, no válido, inválido, no encuentro, no encontré
		ripetere, ripeterlo, ripeta, non ho capito, non ho sentito, non valido, non trovo, non ho trovato
		repetir, repita, não entendi, não ouvi, não percebi, inválido, não encontrei
		herhalen, niet verstaan, niet gehoord, niet begrepen, ongeldig, niet gevonden
		повторите, повторить, не понял, не поняла, не расслышал, не расслышала, неверный, не найден, не нашёл, не нашел, не нашла
		upprepa, hörde inte, förstod inte, gjenta, hørte ikke, forstod ikke, forsto ikke, gentage, gentag, toistaa, en kuullut, en ymmärtänyt, ismételje, nem értettem, nem hallottam, repetați, repeta, nu am înțeles, nu am auzit, tekrar, anlamadım, duymadım, powtórzyć, nie zrozumiałem, nie zrozumiałam, nie usłyszałem, nie usłyszałam
		再说, 重复, 没听清, 没听见, 没听到, 没听懂, 没明白, 没有找到, 无效, もう一度, 聞き取れ, わかりません, 分かりません, 見つかりません, 다시, 못 들었, 못 들었습니다, 이해하지 못, 잘못, दोबारा, फिर से, समझ नहीं, सुनाई नहीं, مرة أخرى, لم أسمع, لم أفهم, تكرار`)
	// acknowledged are words with which a listener takes note.
	acknowledged = phrasesOf(`ok, okay, yes, yeah, yep, yup, sure, right, all right, alright, good, great, fine, perfect, thanks, thank you, thank you very much, thanks a lot, i see, got it, understood, uh huh, mhm, mm, mm hm, hmm, ah, oh, cool, nice, sounds good, that works, very good, no, nope, please, wonderful, excellent, and, so, well
		ja, jo, gut, sehr gut, okay, alles klar, klar, danke, vielen dank, danke schön, super, prima, genau, verstehe, verstanden, aha, ach so, passt, in ordnung, nein, nee, bitte, mhm
		oui, ouais, d accord, daccord, merci, merci beaucoup, bien, très bien, parfait, super, ok, ah, je vois, compris, c est bon, non, entendu, bon
		sí, vale, de acuerdo, gracias, muchas gracias, bien, muy bien, perfecto, bueno, claro, entiendo, entendido, ya, ah, genial, no, ok
		sì, va bene, okay, grazie, grazie mille, bene, molto bene, perfetto, capito, ho capito, certo, d accordo, daccordo, ah, no, ok
		sim, tá, tá bom, está bem, ok, obrigado, obrigada, muito obrigado, bem, certo, perfeito, entendi, entendido, claro, ótimo, não, ah
		ja, goed, prima, oké, ok, dank u, dank je, bedankt, dank u wel, duidelijk, begrepen, snap ik, mooi, nee, perfect, top
		да, хорошо, ладно, понятно, понял, поняла, спасибо, большое спасибо, ясно, отлично, ага, угу, нет, окей, хорошо спасибо
		ja, jaha, okej, ok, bra, tack, tack så mycket, jag förstår, perfekt, visst, nej, mm
		ja, ok, greit, bra, takk, tusen takk, jeg forstår, skjønner, perfekt, nei, fint
		ja, ok, okay, godt, fint, tak, mange tak, jeg forstår, perfekt, nej, super
		joo, kyllä, okei, ok, hyvä, kiitos, kiitos paljon, selvä, ymmärrän, ei, hienoa
		igen, jó, rendben, oké, köszönöm, köszönöm szépen, értem, nem, szuper, persze
		da, bine, ok, mulțumesc, mersi, am înțeles, înțeleg, perfect, sigur, nu, în regulă
		evet, tamam, peki, teşekkürler, teşekkür ederim, sağ olun, anladım, güzel, harika, hayır, olur
		tak, dobrze, okej, ok, dziękuję, dzięki, rozumiem, świetnie, jasne, nie, w porządku
		好, 好的, 行, 嗯, 是, 是的, 对, 可以, 谢谢, 谢谢您, 谢谢你, 明白, 明白了, 知道了, 了解, 不, 不是, 没问题
		うん, ええ, そうですか, わかりました, 分かりました, 了解です, 了解, ありがとう, ありがとうございます, なるほど, いいえ, 大丈夫です, はいわかりました
		예, 알겠습니다, 알겠어요, 감사합니다, 고마워요, 고맙습니다, 좋아요, 그렇군요, 아니요, 네 알겠습니다, 네 감사합니다, 네 알겠어요
		हाँ, हां, जी, जी हाँ, ठीक, ठीक है, अच्छा, धन्यवाद, शुक्रिया, समझ गया, समझ गई, नहीं
		نعم, حسنا, حسناً, طيب, تمام, شكرا, شكراً, شكرا لك, فهمت, مفهوم, جيد, لا`)
	// light are words of courtesy and of what agents say in every call. They carry no information.
	light = phrasesOf(`moment, second, seconds, minute, please, let, lets, check, look, looking, help, assist, assistance, thank, thanks, thankyou, patience, sorry, apologize, apologies, wait, waiting, hold, anything, else, sure, course, happy, glad, welcome, hello, hi, good, great, perfect, okay, ok, alright, fine, understand, appreciate, see, know, tell, told, say, said, mention, mentioned, already, like, want, need, thing, yes, no, well, right, get, go, going, one, moment, call, calling, today, just, also, still, really, again, now, absolutely, certainly, definitely, question, questions, inconvenience, actually, then, back, give, take, make, would, could, may, might, new
		moment, augenblick, sekunde, bitte, mal, kurz, nachsehen, schauen, schaue, prüfe, prüfen, helfen, hilfe, danke, geduld, leid, tut, entschuldigung, warten, gerne, gern, natürlich, klar, gut, super, okay, verstehe, weiter, sonst, etwas, noch, tun, schon, bereits, gesagt, sagte, erwähnt, ja, nein, heute, jetzt, gleich, also, dann, sagen, frage, fragen, brauchen, brauche
		moment, instant, seconde, attendez, patienter, patience, merci, plaît, vérifie, vérifier, regarde, regarder, aider, aide, désolé, désolée, bien, sûr, parfait, accord, comprends, autre, chose, puis, déjà, dit, mentionné, aujourd, hui, oui, non, maintenant, alors, voilà, question, questions, besoin
		momento, segundo, favor, espere, paciencia, gracias, compruebo, comprobar, miro, mirar, ayudar, ayudo, ayuda, siento, claro, perfecto, bien, vale, entiendo, algo, puedo, ya, dije, dicho, mencioné, hoy, sí, ahora, entonces, pregunta, preguntas, necesito, necesita
		momento, attimo, secondo, favore, attenda, pazienza, grazie, controllo, verifico, verificare, guardo, aiutare, aiuto, aiutarla, spiace, dispiace, certo, perfetto, bene, capisco, altro, posso, già, detto, menzionato, oggi, ora, allora, domanda, domande
		momento, instante, segundo, favor, aguarde, paciência, obrigado, obrigada, verifico, verificar, ver, ajudar, ajuda, ajudo, desculpe, lamento, claro, perfeito, bem, entendo, mais, alguma, coisa, posso, já, disse, dito, mencionei, hoje, agora, então, pergunta, perguntas
		moment, ogenblik, seconde, alstublieft, geduld, dank, bedankt, kijk, kijken, controleer, helpen, hulp, sorry, spijt, natuurlijk, goed, prima, begrijp, anders, iets, verder, al, gezegd, zei, vandaag, ja, nee, dan, vraag, vragen
		минуту, минутку, секунду, момент, пожалуйста, подождите, терпение, спасибо, проверю, посмотрю, помочь, помогу, помощь, извините, простите, конечно, хорошо, отлично, понимаю, ещё, еще, чем, могу, уже, сказал, сказала, говорил, говорила, сегодня, да, нет, сейчас, тогда, вопрос, вопросы
		ögonblick, sekund, snäll, tack, tålamod, kollar, hjälpa, hjälp, ursäkta, tyvärr, naturligtvis, bra, förstår, annat, något, redan, sagt, idag, fråga, frågor
		øyeblikk, øjeblik, sekund, takk, tak, tålmodighet, tålmodighed, sjekker, tjekker, hjelpe, hjælpe, hjelp, hjælp, beklager, selvfølgelig, bra, godt, forstår, annet, andet, allerede, sagt, dag, spørsmål, spørgsmål
		hetki, hetkinen, kiitos, odota, odottakaa, tarkistan, auttaa, apua, anteeksi, pahoittelut, hyvä, ymmärrän, muuta, jo, sanoin
		pillanat, türelem, köszönöm, várjon, ellenőrzöm, segíthetek, segíteni, sajnálom, elnézést, jó, rendben, értem, még, már, mondtam
		moment, secundă, mulțumesc, răbdare, așteptați, verific, ajuta, ajutor, scuze, bine, înțeleg, altceva, deja, spus
		dakika, saniye, lütfen, teşekkür, teşekkürler, bekleyin, sabır, kontrol, yardımcı, yardım, üzgünüm, tabii, iyi, anlıyorum, başka, zaten, söyledim
		chwilę, chwileczkę, moment, sekundę, proszę, dziękuję, cierpliwość, sprawdzę, pomóc, pomoc, przepraszam, oczywiście, dobrze, rozumiem, jeszcze, już, mówiłem, mówiłam, dziś`)
	// asked are words with which an agent asks the caller for something without a question mark.
	requests = phrasesOf(`please, tell me, give me, let me know, could you, can you, would you, i need your, i will need, ill need, we need your, i need the, may i have, provide, enter, spell
		bitte, sagen sie, nennen sie, geben sie, könnten sie, können sie, würden sie, ich brauche, ich bräuchte, benötige
		s il vous plaît, sil vous plait, dites moi, donnez moi, pouvez vous, pourriez vous, j ai besoin, jai besoin, il me faut, veuillez, indiquez
		por favor, dígame, deme, indique, puede, podría, necesito, me puede
		per favore, per cortesia, mi dica, mi dia, può, potrebbe, ho bisogno, mi serve
		por favor, me diga, diga me, pode, poderia, preciso, me informe, informe
		alstublieft, kunt u, zou u, vertel, geef, noem, ik heb nodig
		пожалуйста, скажите, назовите, можете, могли бы, мне нужен, мне нужна, мне нужно, укажите
		snälla, kan du, kan ni, skulle du, berätta, ange, jag behöver, vennligst, venligst, oppgi, oplys, jeg trenger, jeg skal bruge, kunne du
		kertoisitko, voisitko, kerro, anna, kérem, adja meg, mondja, vă rog, spuneți, lütfen, söyleyin, verin, proszę, podać, podaj
		请, 請, 麻烦, 能否, ください, 下さい, お願い, いただけ, 부탁, 주세요, 말씀해, कृपया, बताइए, बताएं, من فضلك, يرجى, أعطني, أخبرني`)
	// closing are words of a recap, a confirmation or a goodbye, which may repeat.
	closing = phrasesOf(`to summarize, to sum up, to recap, recap, summary, in summary, just to confirm, to confirm, let me confirm, confirming, let me repeat, let me read, i repeat, to repeat, once again, so just, goodbye, bye, nice day, great day, good day, wonderful day, lovely day, nice evening, take care, as a reminder, just a reminder, reminder, remember
		zusammengefasst, zusammenfassend, zusammenfassung, noch einmal, nochmal, zur bestätigung, bestätige, ich wiederhole, zur sicherheit, auf wiederhören, auf wiedersehen, tschüss, schönen tag, schönen abend, erinnerung
		pour résumer, en résumé, je récapitule, récapitulons, pour confirmer, je confirme, je répète, au revoir, bonne journée, bonne soirée, rappel
		para resumir, en resumen, resumiendo, para confirmar, confirmo, le confirmo, repito, le repito, adiós, hasta luego, buen día, buenas tardes, recordatorio, recuerde
		per riassumere, riassumendo, ricapitolando, per conferma, confermo, ripeto, arrivederci, buona giornata, buona serata, promemoria, ricordi
		para resumir, resumindo, em resumo, para confirmar, confirmo, confirmando, repito, tchau, até logo, bom dia, boa tarde, lembrete, lembre
		samengevat, samenvattend, ter bevestiging, bevestig, ik herhaal, nogmaals, tot ziens, fijne dag, prettige dag, herinnering
		итак, подытожу, подведём итог, подтверждаю, повторяю, повторю, до свидания, хорошего дня, всего доброго, напоминаю
		sammanfattningsvis, för att bekräfta, jag upprepar, hej då, ha en bra dag, oppsummert, for å bekrefte, ha det, ha en fin dag, opsummeret, for at bekræfte, farvel, hav en god dag
		yhteenvetona, vahvistan, näkemiin, hyvää päivää, összefoglalva, megerősítem, viszlát, szép napot, în concluzie, confirm, la revedere, o zi bună, özetle, onaylıyorum, hoşça kalın, iyi günler, podsumowując, potwierdzam, do widzenia, miłego dnia
		总结, 總結, 确认一下, 確認一下, 再重复, 重复一遍, 再见, 再見, 祝您, 提醒, まとめ, 確認, 繰り返します, 失礼します, さようなら, 정리하면, 확인, 다시 말씀, 안녕히, संक्षेप में, पुष्टि, दोहरा, नमस्ते, باختصار, للتأكيد, أكرر, مع السلامة`)
	// turning are words that turn the meaning round.
	turning = phrasesOf(`not, no, never, none, nothing, cannot, cant, dont, doesnt, didnt, wont, wouldnt, couldnt, shouldnt, isnt, arent, wasnt, werent, havent, hasnt, neither, nor, before, after, without, with, over, under, above, below, more, less, until, unless, except, only, all, both, every, first, second, third, last, next, if, can, may, must, should, was, were, will, would, could, my, his, her, their, your, our
		nicht, kein, keine, keinen, keinem, keiner, nie, niemals, nichts, weder, vor, nach, ohne, mit, über, unter, mehr, weniger, bis, ab, außer, nur, alle, beide, erste, zweite, letzte, nächste, wenn, falls, kann, muss, soll, war, wird, wäre, mein, sein, ihr, unser
		ne, pas, jamais, rien, aucun, aucune, sans, avec, avant, après, sur, sous, plus, moins, jusqu, sauf, seulement, tous, toutes, si, peut, doit, était, sera, serait, mon, son, votre, notre
		no, nunca, nada, ningún, ninguna, sin, con, antes, después, sobre, bajo, más, menos, hasta, salvo, solo, todos, todas, si, puede, debe, era, será, sería, mi, su, nuestro
		non, mai, niente, nessun, nessuna, senza, con, prima, dopo, sopra, sotto, più, meno, fino, tranne, solo, tutti, tutte, se, può, deve, era, sarà, sarebbe, mio, suo, nostro
		não, nunca, nada, nenhum, nenhuma, sem, com, antes, depois, sobre, sob, mais, menos, até, exceto, só, todos, todas, se, pode, deve, era, será, seria, meu, seu, nosso
		niet, geen, nooit, niets, zonder, met, voor, na, boven, onder, meer, minder, tot, behalve, alleen, alle, als, kan, moet, was, zal, mijn, zijn, onze
		не, нет, никогда, ничего, без, с, до, после, над, под, больше, меньше, кроме, только, все, если, может, должен, был, будет
		inte, ej, aldrig, inget, utan, med, före, efter, över, mer, mindre, ikke, ingen, aldri, aldrig, uten, uden, før, etter, ei, ilman, ennen, jälkeen, nem, nincs, nélkül, előtt, után, nu, fără, cu, înainte, după, değil, yok, önce, sonra, nie, bez, przed
		नहीं, न, मत, पहले, बाद, बिना, لا, ليس, لم, لن, ما, قبل, بعد, بدون, غير, 안, 못, 전에, 후에`)
	// pointing are words that point to something that was said before.
	pointing = phrasesOf(`that, this, these, those, it, there, then, them, they, one, ones, he, she
		dieser, diese, dieses, diesen, diesem, jener, jenes, es, dort, dann, das
		ce, cet, cette, ces, cela, ça, celui, celle
		ese, esa, eso, este, esta, esto, esos, esas, ahí, entonces
		questo, questa, quello, quella, quel, lì, ciò
		esse, essa, isso, este, esta, isto, aquele, aquilo, lá
		deze, dit, die, dat, het, daar, это, этот, эта, тот, там, оно, detta, denne, dette, tämä, acest, aceasta, acel, bu, şu
		这, 那, 它, その, あの, それ, これ, 그, 이, यह, वह, هذا, هذه, ذلك, تلك`)
	// referring are words by which an agent refers to what it has said.
	referring = phrasesOf(`as i said, as i mentioned, as mentioned, as stated, as explained, as noted, as discussed, as i explained, as i told you, as i already, like i said, like i mentioned, like i told you, i already told, i already mentioned, i already said, i already explained, i already gave, ive already told, ive already mentioned, ive already said, ive already explained, ive already given, i have already told, i have already mentioned, i have already explained, i have already given, i just told, i just mentioned, i just said, i just gave, i just explained, i told you, i mentioned, i gave you, i said before, i said earlier, as before, mentioned earlier, mentioned before, we discussed, i described, ive just, i listed, i named, i quoted
		wie gesagt, wie schon gesagt, wie bereits gesagt, wie erwähnt, wie schon erwähnt, wie bereits erwähnt, wie ich sagte, wie ich schon sagte, wie ich bereits sagte, wie ich gesagt habe, wie ich erwähnte, wie besprochen, wie beschrieben, wie erklärt, habe ich schon gesagt, habe ich bereits gesagt, habe ich ihnen schon, habe ich ihnen bereits, habe ich ja schon, ich sagte ja, ich sagte ihnen, ich sagte schon, ich habe ihnen schon, ich habe ihnen bereits, ich habe schon gesagt, ich habe bereits gesagt, die ich erwähnt habe, den ich erwähnt habe, das ich erwähnt habe, die ich genannt habe, den ich genannt habe, eben genannt, eben genannte, eben genannten, eben erwähnt, erwähnte, erwähnten, vorhin gesagt, vorhin erwähnt, gerade gesagt, gerade genannt, genannten, besagten
		comme je l ai dit, comme je lai dit, comme je vous l ai dit, comme je vous lai dit, comme je disais, comme je vous disais, comme dit, comme mentionné, comme indiqué, comme expliqué, comme je l ai mentionné, comme je lai mentionné, comme je l ai expliqué, comme je lai expliqué, je vous l ai déjà dit, je vous lai déjà dit, je vous ai déjà, je vous ai dit, j ai mentionné, jai mentionné, que j ai mentionné, dont je vous ai parlé, dont j ai parlé, dont jai parlé, que je viens de, comme précisé, mentionné plus tôt, mentionnée, mentionnés
		como le dije, como dije, como ya dije, como le he dicho, como he dicho, como ya le dije, como le comenté, como comenté, como mencioné, como le mencioné, como le decía, como expliqué, como le expliqué, ya le dije, ya le he dicho, ya le mencioné, ya le expliqué, ya le di, que le mencioné, que mencioné, que le comenté, que le dije, que le di, acabo de decir, acabo de mencionar, mencionado antes, mencionada, mencionado
		come ho detto, come le ho detto, come dicevo, come le dicevo, come già detto, come detto, come ho già detto, come menzionato, come ho menzionato, come le ho spiegato, come ho spiegato, come accennato, le ho già detto, gliel ho già detto, glielho già detto, ho già detto, ho già spiegato, ho già menzionato, che le ho detto, che ho menzionato, di cui le ho parlato, che le ho dato, che ho appena, le ho appena, menzionato prima, sopra citato
		como eu disse, como disse, como já disse, como lhe disse, como mencionei, como eu mencionei, como já mencionei, como expliquei, como falei, como eu falei, conforme mencionei, conforme mencionado, conforme disse, já disse, já lhe disse, já mencionei, já expliquei, já lhe dei, que mencionei, que eu mencionei, que lhe disse, que eu disse, que lhe dei, acabei de dizer, acabei de mencionar, mencionado antes
		zoals gezegd, zoals ik zei, zoals ik al zei, zoals ik heb gezegd, zoals vermeld, zoals genoemd, zoals ik noemde, zoals ik vertelde, zoals ik al vertelde, zoals uitgelegd, zoals besproken, ik zei al, ik heb u al, ik heb al gezegd, ik heb al verteld, dat zei ik al, die ik noemde, dat ik noemde, die ik net noemde, waar ik het over had, net genoemde, eerder genoemde, ik net zei
		как я сказал, как я сказала, как я уже сказал, как я уже сказала, как я говорил, как я говорила, как я уже говорил, как я уже говорила, как уже говорилось, как упоминалось, как упоминал, как упоминала, как было сказано, я уже сказал, я уже сказала, я уже говорил, я уже говорила, я уже упоминал, я уже упоминала, о котором я говорил, о котором я говорила, о которой я говорил, о которой я говорила, который я назвал, которую я назвала, только что сказал, только что сказала, вышеупомянутый
		som jag sa, som jag sade, som sagt, som nämnt, som jag nämnde, jag sa ju, jag har redan sagt, jag nämnde, som jag berättade, som jag förklarade, som nevnt, som jeg sa, som jeg nevnte, jeg har allerede sagt, jeg nevnte, som jeg sagde, som nævnt, som jeg nævnte, jeg har allerede, jeg nævnte, som sagt
		kuten sanoin, kuten mainitsin, kuten mainittu, niin kuin sanoin, sanoin jo, mainitsin jo, mainitsemani
		ahogy mondtam, ahogy említettem, mint mondtam, mint említettem, ahogy már mondtam, már mondtam, már említettem, az említett, az imént említett
		cum am spus, cum am menționat, așa cum am spus, după cum am spus, v am spus deja, vam spus deja, am menționat, pe care l am menționat, am spus deja
		dediğim gibi, söylediğim gibi, belirttiğim gibi, bahsettiğim gibi, bahsettiğim, söyledim ya, az önce söylediğim, az önce bahsettiğim
		jak mówiłem, jak mówiłam, jak już mówiłem, jak już mówiłam, jak wspomniałem, jak wspomniałam, jak powiedziałem, jak powiedziałam, już mówiłem, już mówiłam, o którym mówiłem, o którym mówiłam, o której mówiłem, o której mówiłam, wspomniany, wspomniana
		我说过, 我說過, 我刚才说, 我剛才說, 刚才说的, 刚才提到, 剛才提到, 我提到, 如前所述, 我已经说, 我已经告诉, 我告诉过, 就像我说, 正如我说, 我刚说, 刚刚提到
		先ほど申し上げ, 先ほどお伝え, 先ほどご案内, 先ほど言い, 先ほど述べ, 先ほどお話し, 申し上げたとおり, 申し上げました通り, お伝えしたとおり, お伝えした通り, 言ったように, 前述の, さっき言った
		말씀드린 대로, 말씀드렸듯이, 말씀드린, 아까 말씀드린, 방금 말씀드린, 이미 말씀드렸, 이미 말씀드렸습니다, 앞서 말씀드린, 말했듯이, 언급한, 언급했듯이
		जैसा मैंने कहा, जैसा कि मैंने कहा, जैसे मैंने कहा, जैसा कि मैंने बताया, जैसा मैंने बताया, जैसे मैंने बताया, मैंने पहले ही बताया, मैंने पहले बताया, मैंने बताया था, मैंने अभी बताया, मैंने अभी कहा
		كما قلت, كما ذكرت, كما أخبرتك, كما اخبرتك, كما أشرت, كما سبق, لقد قلت لك, قلت لك, سبق أن قلت, سبق أن ذكرت, ذكرت لك, الذي ذكرته, التي ذكرتها, المذكور, المذكورة`)
	// resuming are words by which an agent goes on where it was cut. Then it says the rest.
	resuming = phrasesOf(`as i was saying, like i was saying, where was i, let me finish, i was saying, i was about to, to continue, wie ich gerade sagen wollte, was ich sagen wollte, comme j allais le dire, comme jallais le dire, como le estaba diciendo, como iba diciendo, come stavo dicendo, como eu estava dizendo, zoals ik wilde zeggen`)
	// demonstratives stand before the name of something that was said.
	demonstratives = phrasesOf(`that, those, this, these, dieser, diese, dieses, diesen, diesem, jener, jene, jenes, jenen, cet, cette, ces, ce, ese, esa, esos, esas, este, esta, estos, estas, quel, quella, quei, quelle, questo, questa, questi, queste, esse, essa, esses, essas, aquele, aquela, deze, этот, эта, это, эти, этой, этого`)
	// times are words that need no earlier mention behind a demonstrative.
	times = phrasesOf(`time, day, week, month, year, morning, afternoon, evening, way, case, point, information, matter, reason, kind, sort, number, tag, tages, woche, monat, jahr, zeit, zeitpunkt, fall, weise, punkt, grund, art, abend, morgen, nummer, jour, semaine, mois, année, matin, soir, temps, cas, fois, façon, point, raison, sorte, numéro, día, semana, mes, año, mañana, tarde, noche, vez, caso, manera, razón, número, momento, giorno, settimana, mese, anno, mattina, sera, volta, caso, modo, motivo, numero, dia, mês, ano, manhã, noite, forma, dag, week, maand, jaar, keer, geval, manier, день, неделя, неделю, неделе, месяц, год, раз, случай, способ, номер`)
	// unanswered are words of a reply that leaves a question open.
	unanswered = phrasesOf(`dont know, do not know, not sure, no idea, wait, moment, second, hold on, let me, why, later, rather not, dont have, do not have, dont want, cant remember, cannot remember, dont remember, depends, whatever, maybe, think so, guess, none of your, one sec, hang on, look it up, find it
		weiß nicht, weiß es nicht, keine ahnung, nicht sicher, moment, sekunde, warum, wieso, später, habe ich nicht, hab ich nicht, möchte nicht, will nicht, vielleicht, warten, kommt darauf an, glaube, erinnere mich nicht
		sais pas, aucune idée, pas sûr, moment, instant, attendez, pourquoi, plus tard, ai pas, veux pas, peut être, dépend, crois
		no sé, no lo sé, ni idea, no estoy seguro, no estoy segura, momento, espere, por qué, luego, más tarde, no tengo, no quiero, tal vez, quizás, depende, creo
		non so, non lo so, non ho idea, non sono sicuro, non sono sicura, momento, attimo, aspetti, perché, più tardi, non ho, non voglio, forse, dipende, credo
		não sei, não tenho, não tenho certeza, momento, espera, espere, por que, mais tarde, não quero, talvez, depende, acho
		weet niet, weet ik niet, geen idee, niet zeker, moment, wacht, waarom, later, heb ik niet, wil niet, misschien, hangt ervan
		не знаю, не уверен, не уверена, минуту, секунду, подождите, почему, зачем, позже, нет под рукой, не хочу, может быть, зависит
		vet inte, vet ikke, ved ikke, ögonblick, øyeblikk, øjeblik, vänta, vent, varför, hvorfor, kanske, kanskje, måske, en tiedä, hetki, miksi, ehkä, nem tudom, pillanat, miért, talán, nu știu, moment, de ce, poate, bilmiyorum, dakika, neden, belki, nie wiem, chwila, chwilę, dlaczego, może
		不知道, 不清楚, 不确定, 等一下, 等等, 为什么, 以后, 没有, 也许, わかりません, 分かりません, 知りません, ちょっと待って, 待って, なぜ, どうして, あとで, 多分, 모르겠, 모르겠어요, 몰라요, 잠깐만요, 잠시만요, 왜, 나중에, 아마, पता नहीं, नहीं पता, रुकिए, क्यों, बाद में, शायद, لا أعرف, لا أدري, لست متأكد, لحظة, انتظر, لماذا, ربما`)
	// failing are words of an agent for which an answer will not do.
	failing = phrasesOf(`not, no, cannot, cant, dont, doesnt, isnt, wasnt, couldnt, unfortunately, sorry, booked, unavailable, invalid, wrong, only, instead
		nicht, kein, keine, keinen, leider, ausgebucht, ungültig, falsch, nur, stattdessen
		pas, aucun, aucune, malheureusement, complet, invalide, désolé, désolée, seulement
		no, ningún, ninguna, lamentablemente, desgraciadamente, completo, inválido, siento, solo
		non, nessun, nessuna, purtroppo, completo, spiace, solo
		não, nenhum, nenhuma, infelizmente, lotado, inválido, lamento, só
		niet, geen, helaas, volgeboekt, ongeldig, alleen
		не, нет, сожалению, занято, неверно, только
		inte, ikke, ej, tyvärr, desværre, dessverre, fullbokat, valitettavasti, sajnos, nem, nincs, din păcate, nu, maalesef, değil, yok, niestety, nie
		不, 没, 无, 抱歉, 可惜, 申し訳, ません, 残念, 満席, 죄송, 죄송합니다, 없습니다, 아쉽게도, नहीं, क्षमा, للأسف, لا, ليس, لم`)
	// changing are words that make an answer void, or ask for a second thing.
	changing = phrasesOf(`another, also, second, other, different, change, changed, instead, actually, wait, wrong, mistake, meant, correction, correct that, no not, else, too, as well, both, next, new, start over, one more, plus
		noch ein, noch eine, noch einen, auch, zweite, zweiten, zweites, andere, anderen, anderer, anderes, ändern, stattdessen, doch, falsch, fehler, meinte, korrektur, außerdem, neu, neue, von vorn
		autre, aussi, deuxième, second, seconde, changer, plutôt, finalement, faux, erreur, voulais dire, nouveau, nouvelle, également
		otro, otra, también, segundo, segunda, diferente, cambiar, mejor, en realidad, error, equivocado, equivoqué, quería decir, nuevo, nueva, además
		altro, altra, anche, secondo, seconda, diverso, cambiare, invece, sbagliato, errore, volevo dire, nuovo, nuova, inoltre
		outro, outra, também, segundo, segunda, diferente, mudar, na verdade, errado, erro, quis dizer, novo, nova, além
		ander, andere, ook, tweede, nog een, wijzigen, veranderen, liever, fout, verkeerd, bedoelde, nieuw, nieuwe, eigenlijk
		другой, другая, другое, другую, также, тоже, второй, второго, вторая, вторую, изменить, лучше, вообще то, ошибка, ошибся, ошиблась, неправильно, имел в виду, имела в виду, новый, новая, ещё один, еще один, ещё одну, еще одну
		annan, annat, också, andra, ändra, fel, istället, annen, også, endre, feil, anden, ændre, forkert, toinen, myös, muuttaa, väärin, másik, változtat, hibás, altul, schimb, greșit, başka, değiştir, yanlış, inny, inna, też, także, drugi, drugą, zmienić, źle, błąd
		另, 另外, 还有, 還有, 也, 第二, 改, 换, 錯, 错, 新, 別の, もう一つ, もう一人, 二つ目, 二人目, 変更, 間違, 違い, 新しい, 다른, 또, 두 번째, 변경, 바꿔, 틀렸, 아니라, 새, दूसरा, दूसरी, दूसरे, भी, और, बदल, गलत, नया, आخر, أخرى, أيضا, ثاني, تغيير, خطأ, جديد`)
	// routine are words of questions that agents ask several times in a call.
	routine = phrasesOf(`help, else, assist, okay, ok, correct, right, hear, there, understand, understood, more, ready, clear, alright, work, works, sense, sound, sounds, good, sure, agree, confirm, proceed, continue, anything, something, question, questions, fine, do, like, want, interested, next, hearing, line, problem, issue, wish
		helfen, sonst, noch, okay, richtig, korrekt, hören, da, verstanden, verstehen, mehr, bereit, klar, passt, recht, sicher, einverstanden, bestätigen, weiter, etwas, fragen, frage, gut, möchten, interessiert, stimmt
		aider, autre, correct, entendez, là, compris, plus, prêt, clair, convient, sûr, accord, confirmer, continuer, question, questions, bon, bien
		ayudar, más, algo, correcto, oye, ahí, entendido, listo, claro, bien, seguro, acuerdo, confirmar, continuar, pregunta, preguntas, parece
		aiutare, aiutarla, altro, corretto, sente, lì, capito, pronto, chiaro, bene, sicuro, accordo, confermare, continuare, domanda, domande
		ajudar, mais, algo, correto, ouve, aí, entendeu, pronto, claro, bem, certeza, acordo, confirmar, continuar, pergunta, perguntas, certo
		helpen, anders, nog, correct, klopt, hoort, daar, begrepen, meer, klaar, duidelijk, goed, zeker, akkoord, bevestigen, verder, vraag, vragen
		помочь, ещё, еще, верно, правильно, слышите, понятно, больше, готовы, ясно, хорошо, согласны, подтверждаете, вопрос, вопросы
		hjälpa, hjelpe, hjælpe, auttaa, segíthetek, ajuta, yardımcı, pomóc`)
	// figures are words of questions whose answer has a number.
	figures = phrasesOf(`how many, how much, number, date, when, what time, phone, code, zip, postcode, age, how old, birth, birthday, amount, account, digits, pin, size, quantity, year, telephone
		wie viele, wie viel, wieviele, wieviel, nummer, kundennummer, bestellnummer, rufnummer, telefonnummer, kontonummer, vertragsnummer, datum, geburtsdatum, wann, uhrzeit, wie spät, postleitzahl, code, wie alt, alter, geboren, betrag, pin, größe, menge, jahr
		combien, numéro, date, quand, quelle heure, code, âge, naissance, montant, taille, année
		cuántos, cuántas, cuánto, cuánta, número, fecha, cuándo, qué hora, código, edad, nacimiento, cantidad, talla, año
		quanti, quante, quanto, quanta, numero, data, quando, che ora, codice, età, nascita, importo, taglia, anno
		quantos, quantas, quanto, quanta, número, data, quando, que horas, código, idade, nascimento, valor, tamanho, ano
		hoeveel, nummer, klantnummer, ordernummer, telefoonnummer, datum, geboortedatum, wanneer, hoe laat, postcode, code, leeftijd, oud, bedrag, maat, jaar
		сколько, номер, дата, дату, когда, во сколько, код, индекс, возраст, лет, рождения, сумма, размер, год
		hur många, hur mycket, nummer, datum, när, födelsedatum, hvor mange, hvor mye, hvor meget, dato, når, hvornår, fødselsdato, montako, paljonko, numero, päivämäärä, milloin, hány, mennyi, szám, száma, dátum, mikor, câți, câte, cât, număr, numărul, dată, când, kaç, numara, numarası, tarih, tarihi, ne zaman, ile, numer, data, kiedy, kod
		多少, 几, 幾, 号码, 號碼, 日期, 什么时候, 编号, 单号, 生日, 何, いつ, 番号, 日付, 生年月日, 몇, 언제, 번호, 날짜, 생년월일, कितने, कितना, कब, नंबर, तारीख, كم, متى, رقم, تاريخ`)
)
