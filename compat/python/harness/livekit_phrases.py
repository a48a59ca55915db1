"""What callers and agents say in the scripted calls, in several languages."""

from __future__ import annotations

import random

LANGUAGES = ("en", "de", "es", "fr", "hi", "ja")

# Openings are shared by many answers of a call, so that answers begin alike.
OPENINGS = {
    "en": [
        "Let me check that for you.",
        "Of course, I can help.",
        "My colleague told me about this.",
        "",
    ],
    "de": ["Das sehe ich gern für Sie nach.", "Natürlich, ich helfe Ihnen.", ""],
    "es": ["Déjeme comprobarlo un momento.", "Claro, puedo ayudarle.", ""],
    "fr": ["Laissez-moi vérifier cela.", "Bien sûr, je peux vous aider.", ""],
    "hi": ["मैं अभी देखता हूँ।", "ज़रूर, मैं मदद करूँगा।", ""],
    "ja": ["少々お待ちください。", "はい、お手伝いします。", ""],
}

SENTENCES = {
    "en": [
        "The {a} train to {p} leaves from platform {n}.",
        "There is a {a} seat left near the window in coach {n}.",
        "The museum in {p} is {a} until six in the evening.",
        "You can change your {a} ticket once without a fee.",
        "The bus to {p} stops right in front of the {a} station.",
        "Your {a} suitcase is waiting at counter {n}.",
        "Shall I send the {a} ticket to your phone or to your home in {p}?",
    ],
    "de": [
        "Der {a} Zug nach {p} fährt von Gleis {n} ab.",
        "Im Wagen {n} ist noch ein {a} Platz am Fenster frei.",
        "Sie können die {a} Fahrkarte einmal kostenlos umtauschen.",
        "Der Bus nach {p} hält direkt vor dem {a} Bahnhof.",
        "Soll ich Ihnen die {a} Fahrkarte nach {p} schicken?",
    ],
    "es": [
        "El tren {a} a {p} sale del andén {n}.",
        "Queda un asiento {a} junto a la ventana en el coche {n}.",
        "Puede cambiar su billete {a} una vez sin coste.",
        "¿Le envío el billete {a} a su casa en {p}?",
    ],
    "fr": [
        "Le train {a} pour {p} part du quai {n}.",
        "Il reste une place {a} près de la fenêtre en voiture {n}.",
        "Vous pouvez échanger votre billet {a} une fois sans frais.",
        "Dois-je envoyer le billet {a} chez vous à {p} ?",
    ],
    "hi": [
        "{p} की {a} गाड़ी प्लेटफ़ॉर्म {n} से चलती है।",
        "कोच {n} में खिड़की के पास एक {a} सीट बाकी है।",
        "आप अपना {a} टिकट एक बार मुफ़्त बदल सकते हैं।",
    ],
    "ja": [
        "{p}行きの{a}列車は{n}番線から発車します。",
        "{n}号車の窓側に{a}席が一つ残っています。",
        "{a}切符は一度だけ無料で変更できます。",
    ],
}

ADJECTIVES = {
    "en": ["early", "late", "direct", "cheap", "quiet", "green", "regional", "first"],
    "de": ["frühe", "späte", "direkte", "günstige", "ruhige", "grüne"],
    "es": ["directo", "rápido", "barato", "tranquilo", "verde", "regional"],
    "fr": ["direct", "rapide", "tranquille", "vert", "régional", "libre"],
    "hi": ["सीधी", "तेज़", "सस्ती", "शांत", "हरी"],
    "ja": ["早い", "静かな", "安い", "新しい", "緑の"],
}
PLACES = {
    "en": ["Boston", "Denver", "Lisbon", "Oslo", "Vienna", "Dublin", "Turin", "Prague"],
    "de": ["Bremen", "Kassel", "Wien", "Bern", "Lübeck", "Jena"],
    "es": ["Sevilla", "Bilbao", "Lima", "Quito", "Toledo"],
    "fr": ["Lyon", "Nantes", "Lille", "Dijon", "Metz"],
    "hi": ["दिल्ली", "जयपुर", "पुणे", "सूरत"],
    "ja": ["大阪", "京都", "札幌", "仙台"],
}
NUMBERS = {
    "en": ["two", "three", "five", "seven", "nine"],
    "de": ["zwei", "drei", "fünf", "sieben"],
    "es": ["dos", "tres", "cinco", "siete"],
    "fr": ["deux", "trois", "cinq", "sept"],
    "hi": ["दो", "तीन", "पाँच", "सात"],
    "ja": ["二", "三", "五", "七"],
}

QUESTIONS = {
    "en": [
        "When is my train to {p}?",
        "Is the {a} one late?",
        "Can I take my bicycle to {p}?",
        "Yes.",
        "And how much is the {a} one?",
        "No, wait, I mean {p}.",
    ],
    "de": [
        "Wann fährt mein Zug nach {p}?",
        "Ist der {a} verspätet?",
        "Ja.",
        "Nein, ich meine {p}.",
        "Was kostet der {a}?",
    ],
    "es": ["¿Cuándo sale mi tren a {p}?", "¿Y el {a}?", "Sí.", "No, quiero decir {p}."],
    "fr": ["Quand part mon train pour {p} ?", "Et le {a} ?", "Oui.", "Non, je veux dire {p}."],
    "hi": ["{p} की मेरी गाड़ी कब है?", "और {a} वाली?", "हाँ।", "नहीं, मेरा मतलब {p}।"],
    "ja": ["{p}行きは何時ですか?", "{a}のはありますか?", "はい。", "いいえ、{p}です。"],
}


class Phrases:
    """Texts of one call. No answer is made twice."""

    def __init__(self, language: str, rnd: random.Random) -> None:
        self.language = language
        self.rnd = rnd
        self._made: set[str] = set()

    def _fill(self, template: str) -> str:
        lang, rnd = self.language, self.rnd
        return template.format(
            a=rnd.choice(ADJECTIVES[lang]), p=rnd.choice(PLACES[lang]), n=rnd.choice(NUMBERS[lang])
        )

    def answer(self, *, short: bool = False) -> str:
        rnd, joint = self.rnd, "" if self.language == "ja" else " "
        while True:
            parts = [rnd.choice(OPENINGS[self.language])]
            for _ in range(1 if short else rnd.randint(1, 3)):
                parts.append(self._fill(rnd.choice(SENTENCES[self.language])))
            text = joint.join(p for p in parts if p)
            if text not in self._made:
                self._made.add(text)
                return text

    def question(self) -> str:
        return self._fill(self.rnd.choice(QUESTIONS[self.language]))
