"""What bots and callers say, in several languages. No sentence of a call comes twice."""

# ruff: noqa: RUF001 - punctuation of other scripts
from __future__ import annotations

import random

# {n} is a number and {w} a word of the list "words".
ANSWERS: dict[str, list[str]] = {
    "en": [
        "The next train to {w} leaves at {n} minutes past nine, from platform two.",
        "I have found {n} seats for you, and two of them are at the window.",
        "Your order number {n} was sent to {w} on Monday morning.",
        "If you like, I can also book a table in {w} for {n} people.",
        "That costs {n} euros, including the reservation.",
        "Please keep your ticket, because the inspector in {w} asks for number {n}.",
        "Sure, number {n}!",
        "There is a small delay of {n} minutes near {w}, but you will still catch your bus.",
    ],
    "de": [
        "Der nächste Zug nach {w} fährt um neun Uhr {n}, und zwar von Gleis zwei.",
        "Ich habe {n} Plätze für Sie gefunden, zwei davon am Fenster.",
        "Ihre Bestellung mit der Nummer {n} ist am Montag nach {w} gegangen.",
        "Auf Wunsch reserviere ich Ihnen in {w} auch einen Tisch für {n} Personen.",
        "Das kostet {n} Euro, einschließlich der Reservierungsgebühr.",
        "Gern, Nummer {n}!",
        "Kurz vor {w} gibt es {n} Minuten Verspätung, den Bus erreichen Sie aber noch.",
    ],
    "es": [
        "El próximo tren a {w} sale a las nueve y {n}, del andén dos.",
        "He encontrado {n} asientos para usted, y dos están junto a la ventana.",
        "Su pedido número {n} salió hacia {w} el lunes por la mañana.",
        "Si quiere, también puedo reservar una mesa en {w} para {n} personas.",
        "Cuesta {n} euros, con la reserva incluida.",
        "¡Claro, el número {n}!",
        "Hay un retraso de {n} minutos cerca de {w}, pero llegará a tiempo.",
    ],
    "fr": [
        "Le prochain train pour {w} part à neuf heures {n}, du quai numéro deux.",
        "J'ai trouvé {n} places pour vous, dont deux près de la fenêtre.",
        "Votre commande numéro {n} est partie pour {w} lundi matin.",
        "Si vous voulez, je peux réserver une table à {w} pour {n} personnes.",
        "Cela coûte {n} euros, réservation comprise.",
        "Bien sûr, le numéro {n} !",
        "Il y a un retard de {n} minutes près de {w}, mais vous aurez votre bus.",
    ],
    "ru": [
        "Следующий поезд до города {w} отправляется через {n} минут, со второго пути.",
        "Я нашла для вас {n} места, два из них у окна.",
        "Ваш заказ номер {n} отправлен в {w} в понедельник утром.",
        "Если хотите, я закажу столик в городе {w} на {n} человек.",
        "Это стоит {n} евро, вместе с бронированием.",
        "Конечно, номер {n}!",
    ],
    "ar": [
        "القطار القادم إلى {w} يغادر بعد {n} دقيقة، من الرصيف الثاني.",
        "وجدت لك {n} مقاعد، واثنان منها قرب النافذة.",
        "طلبك رقم {n} أرسل إلى {w} صباح يوم الاثنين.",
        "إذا أردت، يمكنني حجز طاولة في {w} لعدد {n} أشخاص.",
        "السعر {n} يورو، مع الحجز.",
    ],
    "zh": [
        "下一班去{w}的火车再过{n}分钟从二号站台开出，请不要迟到。",
        "我给您找到了{n}个座位，其中两个靠窗。",
        "您的第{n}号订单星期一早上已经寄往{w}。",
        "如果您愿意，我也可以在{w}订一张{n}人的桌子。",
        "一共{n}欧元，包括订座费。",
    ],
    "ja": [
        "次の{w}行きの電車は{n}分後に二番線から出ます。",
        "お席を{n}つ見つけました、そのうち二つは窓側です。",
        "ご注文番号{n}は月曜の朝に{w}へ発送しました。",
        "よろしければ、{w}で{n}名様のお席も予約できます。",
        "予約料を含めて{n}ユーロです。",
    ],
}

QUESTIONS: dict[str, list[str]] = {
    "en": [
        "When does train {n} to {w} leave?",
        "No wait, I need {n} tickets for {w}",
        "What about {w} on the {n}th?",
    ],
    "de": [
        "Wann fährt Zug {n} nach {w}?",
        "Moment, ich brauche {n} Karten nach {w}",
        "Und was ist mit {w} am {n}.?",
    ],
    "es": [
        "¿Cuándo sale el tren {n} a {w}?",
        "Espere, necesito {n} billetes para {w}",
        "¿Y qué pasa con {w} el día {n}?",
    ],
    "fr": [
        "Quand part le train {n} pour {w} ?",
        "Attendez, il me faut {n} billets pour {w}",
        "Et pour {w} le {n} ?",
    ],
    "ru": [
        "Когда отходит поезд {n} до города {w}?",
        "Подождите, мне нужно {n} билета до {w}",
        "А что насчёт {w} числа {n}?",
    ],
    "ar": [
        "متى يغادر القطار {n} إلى {w}؟",
        "لحظة، أحتاج {n} تذاكر إلى {w}",
        "وماذا عن {w} يوم {n}؟",
    ],
    "zh": ["去{w}的{n}次列车什么时候开？", "等一下，我要{n}张去{w}的票", "{w}的{n}号怎么样？"],
    "ja": [
        "{w}行きの{n}号は何時ですか？",
        "待って、{w}まで{n}枚ください",
        "{n}日の{w}はどうですか？",
    ],
}

WORDS: dict[str, list[str]] = {
    "en": ["Leeds", "York", "Bristol", "Cambridge", "Oxford", "Exeter"],
    "de": ["Köln", "Leipzig", "Lübeck", "Würzburg", "Bremen", "Kassel"],
    "es": ["Sevilla", "Málaga", "León", "Burgos", "Cádiz", "Toledo"],
    "fr": ["Lyon", "Nîmes", "Dijon", "Rennes", "Orléans", "Béziers"],
    "ru": ["Тула", "Казань", "Псков", "Омск", "Самара", "Тверь"],
    "ar": ["عمّان", "بيروت", "مسقط", "الرياض", "الكويت", "تونس"],
    "zh": ["杭州", "西安", "南京", "成都", "武汉", "青岛"],
    "ja": ["京都", "札幌", "仙台", "名古屋", "広島", "長崎"],
}

GREETINGS: dict[str, str] = {
    "en": "Hello, this is the station, how may I help you today?",
    "de": "Guten Tag, hier ist der Bahnhof, wie kann ich Ihnen helfen?",
    "es": "Buenos días, aquí la estación, ¿en qué puedo ayudarle?",
    "fr": "Bonjour, ici la gare, comment puis-je vous aider ?",
    "ru": "Здравствуйте, это вокзал, чем я могу вам помочь?",
    "ar": "مرحبا، هنا المحطة، كيف يمكنني مساعدتك اليوم؟",
    "zh": "您好，这里是火车站，请问需要什么帮助？",
    "ja": "こんにちは、駅の案内です、ご用件は何でしょうか？",
}

FILLERS: dict[str, str] = {
    "en": "{n}, one moment, I am looking that up.",
    "de": "{n}, einen Moment, ich sehe gleich nach.",
    "es": "{n}, un momento, ahora lo busco.",
    "fr": "{n}, un instant, je regarde cela.",
    "ru": "{n}, одну минуту, я сейчас посмотрю.",
    "ar": "{n}، لحظة من فضلك، أبحث الآن.",
    "zh": "{n}号，请稍等，我查一下。",
    "ja": "{n}番ですね、少々お待ちください。",
}

HUMS: dict[str, str] = {
    "en": "mhm",
    "de": "aha",
    "es": "ajá",
    "fr": "oui",
    "ru": "угу",
    "ar": "نعم",
    "zh": "嗯",
    "ja": "うん",
}


class Texts:
    """Makes the texts of one call."""

    def __init__(self, language: str, rng: random.Random) -> None:
        self.language, self.rng = language, rng
        self._numbers = rng.sample(range(100, 1000), 400)

    def _fill(self, template: str) -> str:
        return template.format(n=self._numbers.pop(), w=self.rng.choice(WORDS[self.language]))

    def answer(self) -> str:
        """Returns an answer of one to five sentences."""
        n = self.rng.choice([1, 2, 2, 3, 3, 4, 5])
        templates = self.rng.sample(ANSWERS[self.language], min(n, len(ANSWERS[self.language])))
        glue = "" if self.language in ("zh", "ja") else " "
        return glue.join(self._fill(t) for t in templates)

    def filler(self) -> str:
        """Returns what the bot says while it looks something up."""
        return self._fill(FILLERS[self.language])

    def question(self) -> str:
        return self._fill(self.rng.choice(QUESTIONS[self.language]))
